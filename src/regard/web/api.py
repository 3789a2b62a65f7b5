"""A JSON API of typed endpoints, with the OpenAPI description that follows from their types."""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from regard import __version__
from regard.web.openapi import describe
from regard.web.problem import RequestError, invalid, problem

log = logging.getLogger("regard.web")


@dataclass(frozen=True)
class Endpoint:
    """One operation of an API.

    The fields of `takes` come from the path, if it names them, and else from the query of a GET
    or from the JSON object of any other method.

    Args:
        method: "GET", "POST", ...
        path: such as "/api/v1/runs/{run}"
        handler: called with the request and the validated input; returns a model, which is written
            beside the event loop, or a `Response`
        summary: what it does, in one line
        takes: the input
        returns: the answer; None if the handler returns another kind of response
        media_type: of an answer that is not JSON
        example: an input, for the description
        statuses: further statuses that it answers with, beside those of a wrong input
    """

    method: str
    path: str
    handler: Callable[[Request, Any], Awaitable[BaseModel | Response]]
    summary: str
    takes: type[BaseModel] | None = None
    returns: type[BaseModel] | None = None
    media_type: str | None = None
    example: Mapping[str, Any] | None = None
    statuses: Sequence[int] = ()


STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (FileNotFoundError, 404),
    (FileExistsError, 409),
    (BlockingIOError, 409),
    (ValueError, 422),
)
"""Errors of the library that are the caller's, and their statuses."""


def create_app(
    endpoints: Sequence[Endpoint],
    *,
    title: str,
    description_path: str = "/openapi.json",
    routes: Sequence[BaseRoute] = (),
    **options: Any,
) -> Starlette:
    """Return an application that answers these endpoints, without a `Guard` around it.

    Args:
        title: of the OpenAPI description
        description_path: where the OpenAPI description is
        routes: further ones, such as files
        options: of `Starlette`, such as `lifespan`
    """
    described = describe(endpoints, title=title, version=__version__)

    async def description(request: Request) -> Response:
        return JSONResponse(described)

    own = [Route(e.path, _answer(e), methods=[e.method]) for e in endpoints]
    app = Starlette(
        routes=[*own, Route(description_path, description), *routes],
        exception_handlers={
            HTTPException: partial(_http_error, description_path),
            RequestError: _refused,
            Exception: _crash,
        },
        **options,
    )
    app.router.redirect_slashes = False
    return app


def _answer(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            given = None if endpoint.takes is None else await _read(request, endpoint.takes)
            found = await endpoint.handler(request, given)
        except ValidationError as error:
            return invalid(error)
        except ClientDisconnect:
            return Response(status_code=499)  # the client is gone
        except tuple(kind for kind, _ in STATUSES) as error:
            status = next(status for kind, status in STATUSES if isinstance(error, kind))
            log.info("%s %s: %s", request.method, request.url.path, error, exc_info=True)
            return problem(status, str(error))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return problem(507, "the disk is full: make room and try again")
        if isinstance(found, Response):
            return found
        # beside the event loop: an answer may be large
        text = await asyncio.to_thread(found.model_dump_json)
        return Response(text, media_type="application/json")

    return answer


async def _read(request: Request, model: type[BaseModel]) -> BaseModel:
    """The input of a request.

    Raises:
        ValidationError: if it does not fit the model
        RequestError: if it is not a JSON object
    """
    if request.method == "GET":
        given: Any = dict(request.query_params)
    else:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RequestError(415, "the body should be JSON, with Content-Type: application/json")
        try:
            given = from_json(await request.body(), allow_inf_nan=False)
        except ValueError as error:
            raise RequestError(400, f"the body is not valid JSON: {error}") from error
        if not isinstance(given, dict):
            raise RequestError(422, f"the body should be a JSON object, got {type(given).__name__}")
    return model.model_validate({**given, **request.path_params})


async def _http_error(description: str, request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {
        404: f"there is nothing at {request.url.path[:200]}: {description} describes what there is",
        405: f"{request.url.path[:200]} does not take {request.method}",
    }
    sentence = sentences.get(error.status_code, error.detail)
    return problem(error.status_code, sentence, headers=error.headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return problem(error.status, str(error), error.field, headers=error.headers)


async def _crash(request: Request, error: Exception) -> Response:
    """The answer to a defect; Starlette raises the error again, and the server logs it."""
    return problem(500, "the server failed; its log has the details")
