"""Tables of a configuration file, checked: an unknown key or a bad value is one sentence."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from regard.core.names import did_you_mean


class Settings(BaseModel):
    """One table of a configuration file: typed, frozen, with no room for unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class SettingsError(ValueError):
    """A table that is not as it should be: whoever wrote it can mend it."""


SettingsType = TypeVar("SettingsType", bound=Settings)


def read_settings(
    kind: type[SettingsType], values: Mapping[str, Any], table: str = ""
) -> SettingsType:
    """Check a table of values.

    >>> class Sizes(Settings):
    ...     hidden: int = 7
    >>> read_settings(Sizes, {"hidden": 11}, "model")
    Sizes(hidden=11)
    >>> read_settings(Sizes, {"depth": 11}, "model")
    Traceback (most recent call last):
    regard.training.settings.SettingsError: unknown key model.depth; known: hidden

    Args:
        kind: what the table may hold
        table: its name, for errors

    Raises:
        SettingsError: for the first thing that is wrong, by its full name
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise SettingsError(_sentence(kind, error, table)) from None


def _sentence(kind: type[Settings], error: ValidationError, table: str) -> str:
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    name = ".".join([table, *place] if table else place)
    if first["type"] == "extra_forbidden":
        return f"unknown key {name}{did_you_mean(place[-1], kind.model_fields)}"
    if first["type"] == "missing":
        return f"{name} is missing"
    said = first["msg"].removeprefix("Value error, ")
    if not place:  # the table as a whole
        return f"{table}: {said}" if table else said
    said = said.removeprefix("Input ")
    return f"{name} {said}, got {first['input']!r}"
