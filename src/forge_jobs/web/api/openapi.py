"""The OpenAPI 3.1 document, made from the routes themselves: their signatures and their words."""

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

import msgspec
from msgspec import Struct

from forge_jobs.web.error_responses import Problem

from .all import ROUTES
from .route import Route, Text

_REFERENCE: Final = "#/components/schemas/{name}"
_PROBLEMS: Final = {
    400: "The request is wrong; the answer names the field.",
    401: "Nobody known: send a bearer token, or log in.",
    403: "The role does not reach, or the request came from another site.",
    404: "The named thing does not exist.",
    409: "The present state does not allow it.",
    413: "The body is too large.",
    421: "This name is not served here.",
    503: "The store cannot be reached.",
    507: "The store is full.",
}


@lru_cache(maxsize=8)
def described(root: str, *, read_only: bool) -> dict[str, Any]:
    """The document of the routes that are there."""
    routes = [route for route in ROUTES if not (read_only and route.writes)]
    types = _types(routes)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    named = dict(zip(map(_key, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(openapi_path(route), {})[route.method.lower()] = _operation(route, named)
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


def openapi_path(route: Route) -> str:
    """The path of a route below the place where Mission Control is mounted."""
    return route.path if route.path == "/metrics" else f"/api{route.path}"


def _types(routes: Sequence[Route]) -> list[Any]:
    found: dict[str, Any] = {_key(Problem): Problem}
    for route in routes:
        kinds = [*route.parameters.values(), route.body, _answer(route)]
        if route.query is not None:
            kinds.extend(field.type for field in msgspec.structs.fields(route.query))
        found.update((_key(kind), kind) for kind in kinds if kind is not None)
    return list(found.values())


def _key(kind: Any) -> str:
    return repr(kind)


def _answer(route: Route) -> Any:
    return None if route.answer in (None, type(None), Text) else route.answer


def _operation(route: Route, named: dict[str, Any]) -> dict[str, Any]:
    module = route.endpoint.__module__.rpartition(".")[2]
    operation: dict[str, Any] = {
        "operationId": f"{module}_{route.endpoint.__name__}",
        "summary": route.summary,
        "tags": [module],
        "x-role": route.role.word,
        "parameters": _parameters(route, named),
        "responses": _responses(route, named),
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": any(field.required for field in msgspec.structs.fields(route.body)),
            "content": {"application/json": {"schema": named[_key(route.body)]}},
        }
    return operation


def _parameters(route: Route, named: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": named[_key(kind)]}
        for name, kind in route.parameters.items()
    ]
    if route.query is not None:
        found.extend(_asked(route.query, named))
    return found


def _asked(query: type[Struct], named: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": field.encode_name,
            "in": "query",
            "required": field.required,
            "schema": _without_null(named[_key(field.type)]),
        }
        for field in msgspec.structs.fields(query)
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What is not in an address is left out; there is no null there."""
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema


def _responses(route: Route, named: dict[str, Any]) -> dict[str, Any]:
    answer = _answer(route)
    if route.answer is Text:
        content: Any = {"text/plain": {"schema": {"type": "string"}}}
        good = {"200": {"description": route.summary, "content": content}}
    elif answer is None:
        good = {"204": {"description": "Done."}}
    else:
        content = {"application/json": {"schema": named[_key(answer)]}}
        good = {"200": {"description": route.summary, "content": content}}
    problem = {"application/json": {"schema": named[_key(Problem)]}}
    return {
        **good,
        **{
            str(status): {"description": text, "content": problem}
            for status, text in _PROBLEMS.items()
        },
    }
