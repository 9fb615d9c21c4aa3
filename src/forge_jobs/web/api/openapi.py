"""Generates the OpenAPI 3.1 document from the routes: signatures, docstrings and constraints."""

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from inspect import cleandoc
from typing import Any, Final

import msgspec
from msgspec import Struct

from forge_jobs.web.error_responses import Problem

from .all import ROUTES
from .field_texts import describe, describe_parameter, example_of
from .route import Route, TextBody

_REF_TEMPLATE: Final = "#/components/schemas/{name}"
_PROBLEMS: Final = {
    400: "The request is wrong; the response names the field.",
    401: "Not authenticated: send a bearer token, or log in.",
    403: "The role is not sufficient, or the request came from another site.",
    404: "The named thing does not exist.",
    409: "The current state does not allow it.",
    413: "The body is too large.",
    421: "This host name is not served here.",
    503: "The store cannot be reached.",
    507: "The store is full.",
}


@lru_cache(maxsize=8)
def openapi_document(root: str, *, read_only: bool) -> dict[str, Any]:
    """The document of the available routes; ``root`` is the server URL."""
    routes = [route for route in ROUTES if not (read_only and route.writes)]
    types = _schema_types(routes)
    type_schemas, components = msgspec.json.schema_components(types, ref_template=_REF_TEMPLATE)
    schemas = dict(zip(map(_type_key, types), type_schemas, strict=True))
    components = {name: _without_example(one) for name, one in components.items()}
    describe(components)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _with_examples(_operation(route, schemas), components)
        paths.setdefault(openapi_path(route), {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Forge Jobs",
            "version": version("forge-jobs"),
            "description": "Everything Mission Control shows and does, as JSON.",
        },
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _without_example(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without the Python example of its docstring."""
    if "description" not in schema:
        return schema
    text = cleandoc(schema["description"]).partition("\n\n>>>")[0]
    return {**schema, "description": text.strip()}


def openapi_path(route: Route) -> str:
    """The path of a route below the mount path."""
    return route.path if route.path == "/metrics" else f"/api{route.path}"


def _schema_types(routes: Sequence[Route]) -> list[Any]:
    types_by_key: dict[str, Any] = {_type_key(Problem): Problem}
    for route in routes:
        types = [*route.parameters.values(), route.body, _response_type(route)]
        if route.query is not None:
            types.extend(field.type for field in msgspec.structs.fields(route.query))
        types_by_key.update((_type_key(type_), type_) for type_ in types if type_ is not None)
    return list(types_by_key.values())


def _type_key(type_: Any) -> str:
    return repr(type_)


def _response_type(route: Route) -> Any:
    return None if route.response_type in (None, type(None), TextBody) else route.response_type


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    module = route.endpoint.__module__.rpartition(".")[2]
    operation: dict[str, Any] = {
        "operationId": f"{module}_{route.endpoint.__name__}",
        "summary": route.summary,
        "tags": [module],
        "x-role": route.role.word,
        "parameters": _parameters(route, schemas),
        "responses": _responses(route, schemas),
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": any(field.required for field in msgspec.structs.fields(route.body)),
            "content": {"application/json": {"schema": schemas[_type_key(route.body)]}},
        }
    return operation


def _with_examples(operation: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """The operation with an example of its body and of its answer."""
    contents = [operation.get("requestBody", {}), operation["responses"].get("200", {})]
    for content in (one for part in contents for one in part.get("content", {}).values()):
        content["example"] = example_of(content["schema"], components)
    return operation


def _parameters(route: Route, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": schemas[_type_key(type_)]}
        for name, type_ in route.parameters.items()
    ]
    if route.query is not None:
        parameters.extend(_query_parameters(route.query, schemas))
    return [describe_parameter(route.path, one) for one in parameters]


def _query_parameters(query: type[Struct], schemas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": field.encode_name,
            "in": "query",
            "required": field.required,
            "schema": _without_null(schemas[_type_key(field.type)]),
        }
        for field in msgspec.structs.fields(query)
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Query parameters are omitted instead of null, so null is removed from their schema."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema


def _responses(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    response_type = _response_type(route)
    if route.response_type is TextBody:
        content: Any = {"text/plain": {"schema": {"type": "string"}}}
        success = {"200": {"description": route.summary, "content": content}}
    elif response_type is None:
        success = {"204": {"description": "Done."}}
    else:
        content = {"application/json": {"schema": schemas[_type_key(response_type)]}}
        success = {"200": {"description": route.summary, "content": content}}
    problem = {"application/json": {"schema": schemas[_type_key(Problem)]}}
    return {
        **success,
        **{
            str(status): {"description": text, "content": problem}
            for status, text in _PROBLEMS.items()
        },
    }
