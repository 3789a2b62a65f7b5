"""An error as JSON: one sentence, and the field that caused it."""

import re
from collections.abc import Mapping

from pydantic import BaseModel, Field, ValidationError
from starlette.responses import Response

IN_JSON = {  # what pydantic calls types, and what they are in JSON
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dictionary": "an object",
}
LONGEST = 500  # characters of a sentence, which may quote what was sent


class Problem(BaseModel):
    """What went wrong."""

    error: str = Field(description="one sentence")
    field: str | None = Field(None, description="the field of the request that caused it")


def problem(
    status: int,
    error: str,
    field: str | None = None,
    *,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return an error as a response; a sentence on one line, cut if it is very long."""
    error = " ".join(error.split())
    error = error if len(error) <= LONGEST else f"{error[: LONGEST - 1]}…"
    text = Problem(error=error, field=field).model_dump_json(exclude_none=True)
    return Response(text, status, headers=headers, media_type="application/json")


def invalid(error: ValidationError) -> Response:
    """Return the first of the errors of a request that does not fit its model."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # of a union, pydantic adds the types to the place
    field = ".".join(str(part) for part in first["loc"] if re.fullmatch(r"\w+", str(part))) or None
    if first["type"] == "extra_forbidden":
        return problem(422, f"there is no field {field}", field)
    if first["type"] == "missing":
        return problem(422, f"{field} is missing", field)
    reason = re.sub(r"^(Value error,|Input|String|List|Tuple|Dictionary|Data) ", "", first["msg"])
    reason = re.split(r", unable to| after validation|; unexpected", reason)[0]
    for name, words in IN_JSON.items():
        reason = reason.replace(f"a valid {name}", words)
    between = " " if reason.startswith("should ") else ": "
    return problem(422, f"{field}{between}{reason}" if field else reason, field)


class RequestError(Exception):
    """A request that cannot be answered: its status, one sentence, and what caused it."""

    def __init__(
        self,
        status: int,
        error: str,
        field: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(error)
        self.status, self.field, self.headers = status, field, headers
