"""Typed routes: a function's signature is its contract, and the OpenAPI document follows from it.

An endpoint takes ``desk`` first, then path parameters by name, then ``query`` and ``body`` as
msgspec Structs if it wants them, and returns what is sent as JSON.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar, get_type_hints

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from forge_jobs.core.errors import Invalid
from forge_jobs.web.access.identity import Role
from forge_jobs.web.desk import Desk

Endpoint = Callable[..., Awaitable[Any]]
F = TypeVar("F", bound=Endpoint)

_JSON: Final = "application/json"


class BadRequest(Invalid):
    """A field of the request is wrong."""

    code = "validation"

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class Text(Struct, frozen=True):
    """An answer that is not JSON."""

    body: str
    media_type: str = "text/plain; charset=utf-8"


class Route(Struct, frozen=True, kw_only=True):
    """One operation of the API. ``writes``: it changes something, so read-only mode lacks it."""

    method: str
    path: str
    role: Role
    summary: str
    endpoint: Endpoint
    parameters: tuple[str, ...]
    query: type[Struct] | None
    body: type[Struct] | None
    answer: Any
    writes: bool


class Routes:
    """Collects the routes of one file."""

    def __init__(self) -> None:
        self.all: list[Route] = []

    def get(self, path: str, *, role: Role = Role.VIEWER) -> Callable[[F], F]:
        """A route that only looks."""
        return self._add("GET", path, role, writes=False)

    def post(
        self, path: str, *, role: Role = Role.OPERATOR, writes: bool = True
    ) -> Callable[[F], F]:
        """A route that acts, or looks with a body."""
        return self._add("POST", path, role, writes=writes)

    def put(self, path: str, *, role: Role = Role.OPERATOR) -> Callable[[F], F]:
        """A route that stores or replaces one thing."""
        return self._add("PUT", path, role, writes=True)

    def delete(self, path: str, *, role: Role = Role.ADMIN) -> Callable[[F], F]:
        """A route that removes one thing."""
        return self._add("DELETE", path, role, writes=True)

    def _add(self, method: str, path: str, role: Role, *, writes: bool) -> Callable[[F], F]:
        def keep(endpoint: F) -> F:
            hints = get_type_hints(endpoint)
            answer = hints.pop("return", None)
            names = tuple(
                name
                for name in inspect.signature(endpoint).parameters
                if name not in ("desk", "query", "body")
            )
            self.all.append(
                Route(
                    method=method,
                    path=path,
                    role=role,
                    summary=(inspect.getdoc(endpoint) or "").partition("\n")[0],
                    endpoint=endpoint,
                    parameters=names,
                    query=hints.get("query"),
                    body=hints.get("body"),
                    answer=answer,
                    writes=writes,
                )
            )
            return endpoint

        return keep


async def run(route: Route, desk: Desk, request: Request) -> Response:
    """Read the request, call the endpoint, send its answer."""
    given: dict[str, Any] = {name: request.path_params[name] for name in route.parameters}
    if route.query is not None:
        given["query"] = read_query(route.query, request)
    if route.body is not None:
        given["body"] = read_body(route.body, await request.body(), request)
    found = await route.endpoint(desk, **given)
    if isinstance(found, Text):
        return Response(found.body, media_type=found.media_type)
    if route.answer is type(None):
        return Response(status_code=204)
    return Response(msgspec.json.encode(found), media_type=_JSON)


def read_query(wanted: type[Struct], request: Request) -> Struct:
    """The query string as a Struct; list fields take repeated names."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(wanted)}
    given: dict[str, Any] = {}
    for name in request.query_params:
        if name not in fields:
            known = ", ".join(fields)
            raise BadRequest(name, f"there is no query parameter {name!r}: use {known}")
        values = request.query_params.getlist(name)
        if _many(fields[name]):
            given[name] = [part for value in values for part in value.split(",") if part]
        else:
            given[name] = values[-1]
    return _convert(given, wanted, strict=False)


def read_body(wanted: type[Struct], data: bytes, request: Request) -> Struct:
    """The body as a Struct; it must be JSON and say so."""
    kind = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
    if kind != _JSON:
        raise BadRequest("body", f"the body is {kind}: send application/json")
    try:
        given: Any = msgspec.json.decode(data or b"{}")
    except msgspec.DecodeError as error:
        raise BadRequest("body", f"the body is not JSON: {error}") from error
    return _convert(given, wanted, strict=True)


def _convert(given: Any, wanted: type[Struct], *, strict: bool) -> Struct:
    try:
        return msgspec.convert(given, wanted, strict=strict)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        field = place.strip("`").lstrip(".") or "body"
        raise BadRequest(field, f"{field}: {text}") from error


def _many(kind: Any) -> bool:
    text = str(kind)
    return text.startswith(("tuple", "list")) or "tuple[" in text


def as_table(routes: list[Route]) -> Mapping[tuple[str, str], Route]:
    """Routes by method and path; a second one of the same place is a mistake."""
    table: dict[tuple[str, str], Route] = {}
    for route in routes:
        place = (route.method, route.path)
        if place in table:
            raise Invalid(f"{route.method} {route.path} is routed twice")
        table[place] = route
    return table
