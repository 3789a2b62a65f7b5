"""Validated tables of a configuration file."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from regard.core.names import did_you_mean

IN_TOML = {  # what pydantic calls types, and what they are in a configuration file
    "a valid dictionary": "a table",
    "a valid tuple": "a list",
    "a valid list": "a list",
    "a valid string": "text",
    "a valid boolean": "true or false",
    "a valid integer": "a whole number",
    "a valid number": "a number",
}


class Settings(BaseModel):
    """One table of a configuration file: typed, frozen, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class SettingsError(ValueError):
    """Invalid configuration table."""


SettingsType = TypeVar("SettingsType", bound=Settings)


def read_settings(
    kind: type[SettingsType], values: Mapping[str, Any], table: str = ""
) -> SettingsType:
    """Validate a table of values.

    >>> class Sizes(Settings):
    ...     hidden: int = 7
    >>> read_settings(Sizes, {"hidden": 11}, "model")
    Sizes(hidden=11)
    >>> read_settings(Sizes, {"depth": 11}, "model")
    Traceback (most recent call last):
    regard.training.settings.SettingsError: unknown key model.depth; known: hidden

    Args:
        kind: the type of the table
        table: its name, for errors

    Raises:
        SettingsError: for the first invalid key, by its full name
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise SettingsError(_sentence(kind, error, table)) from None


def _sentence(kind: type[Settings], error: ValidationError, table: str) -> str:
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    alternatives = [one for one in error.errors() if one["loc"][:1] == first["loc"][:1]]
    if len(alternatives) > 1:  # of a union; pydantic adds the type to the place
        place = place[:1]
    name = ".".join([table, *place] if table else place)
    if first["type"] == "extra_forbidden":
        return f"unknown key {name}{did_you_mean(place[-1], kind.model_fields)}"
    if first["type"] == "missing":
        return f"{name} is missing"
    message = first["msg"].removeprefix("Value error, ")
    if not place:  # the table as a whole
        return f"{table}: {message}" if table else message
    for other in alternatives[1:]:
        message += f" or {other['msg'].removeprefix('Input should be ')}"
    for python, toml in IN_TOML.items():
        message = message.replace(python, toml)
    if first["type"] == "dict_type":
        message += f" ({name}.KEY = VALUE)"
    value = first["input"]
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"{name} {message.removeprefix('Input ')}, got {shown}"
