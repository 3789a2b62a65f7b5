"""The OpenAPI 3.1 description of typed endpoints."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from regard.web.problem import Problem

if TYPE_CHECKING:
    from regard.web.api import Endpoint

TEMPLATE = "#/components/schemas/{model}"
WRONG = {400: "not JSON", 415: "not JSON", 422: "an input that does not fit"}
REASONS = {
    401: "the token is missing or wrong",
    404: "not found",
    409: "in conflict with what is there",
    413: "too large",
    429: "too many requests",
    503: "busy or not ready",
    504: "took too long",
}


def describe(endpoints: Sequence["Endpoint"], *, title: str, version: str) -> dict[str, Any]:
    """Return the description of an API as what `json.dumps` takes."""
    models: list[tuple[type[BaseModel], Any]] = [(Problem, "serialization")]
    models += [(e.takes, "validation") for e in endpoints if e.takes is not None]
    models += [(e.returns, "serialization") for e in endpoints if e.returns is not None]
    by_model, definitions = models_json_schema(list(dict.fromkeys(models)), ref_template=TEMPLATE)
    schemas = definitions.get("$defs", {})
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        plain = re.sub(r"\{(\w+):\w+\}", r"{\1}", endpoint.path)
        own = paths.setdefault(plain, {})
        own[endpoint.method.lower()] = _operation(endpoint, by_model, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(endpoint: "Endpoint", by_model: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    error = {"application/json": {"schema": by_model[Problem, "serialization"]}}
    answer: dict[str, Any] = {"description": "done"}
    if endpoint.returns is not None:
        schema = by_model[endpoint.returns, "serialization"]
        answer["content"] = {"application/json": {"schema": schema}}
    elif endpoint.media_type is not None:
        answer["content"] = {endpoint.media_type: {}}
    statuses = {status: REASONS[status] for status in endpoint.statuses}
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": endpoint.handler.__name__.strip("_"),
    }
    if endpoint.takes is not None:
        statuses |= WRONG
        schema = _resolved(by_model[endpoint.takes, "validation"], schemas)
        in_path = re.findall(r"\{(\w+)[:}]", endpoint.path)
        properties, required = schema.get("properties", {}), schema.get("required", [])
        rest = {name: value for name, value in properties.items() if name not in in_path}
        is_query = endpoint.method == "GET"
        operation["parameters"] = [
            {
                "name": name,
                "in": "path" if name in in_path else "query",
                "required": name in required or name in in_path,
                "schema": value,
            }
            for name, value in properties.items()
            if name in in_path or is_query
        ]
        if not is_query:
            body = {**schema, "properties": rest}
            body["required"] = [name for name in required if name in rest]
            content: dict[str, Any] = {"schema": body}
            if endpoint.example is not None:
                content["example"] = endpoint.example
            operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    operation["responses"] = {
        "200": answer,
        **{str(s): {"description": why, "content": error} for s, why in sorted(statuses.items())},
    }
    return operation


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return schemas[name] if name else schema
