"""An error as JSON: one sentence, and the field that caused it."""

from collections.abc import Mapping

from pydantic import BaseModel, Field, ValidationError
from starlette.responses import Response

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
    field = ".".join(map(str, first["loc"])) or None
    reason = first["msg"].removeprefix("Value error, ")
    reason = reason[0].lower() + reason[1:]
    return problem(422, f"{field}: {reason}" if field else reason, field)


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
