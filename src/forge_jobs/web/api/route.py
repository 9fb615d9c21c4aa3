"""Typed routes: a function's signature is its contract, and the OpenAPI document follows from it.

An endpoint takes ``desk`` first, then path parameters by name, then ``query`` and ``body`` as
msgspec Structs if it wants them, and returns what is sent as JSON.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from forge_jobs.core.errors import Invalid
from forge_jobs.web.access.identity import Role
from forge_jobs.web.request_context import RequestContext

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
    parameters: Mapping[str, Any]
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
            hints = get_type_hints(endpoint, include_extras=True)
            answer = hints.pop("return", None)
            parameters = {
                name: hints[name]
                for name in inspect.signature(endpoint).parameters
                if name not in ("desk", "query", "body")
            }
            self.all.append(
                Route(
                    method=method,
                    path=path,
                    role=role,
                    summary=(inspect.getdoc(endpoint) or "").partition("\n")[0],
                    endpoint=endpoint,
                    parameters=parameters,
                    query=hints.get("query"),
                    body=hints.get("body"),
                    answer=answer,
                    writes=writes,
                )
            )
            return endpoint

        return keep


async def run(route: Route, desk: RequestContext, request: Request) -> Response:
    """Read the request, call the endpoint, send its answer."""
    given: dict[str, Any] = {
        name: read_parameter(name, kind, request) for name, kind in route.parameters.items()
    }
    if route.query is not None:
        given["query"] = read_query(route.query, request)
    if route.body is not None:
        given["body"] = read_body(route.body, await request.body(), request)
    found = await route.endpoint(desk, **given)
    if isinstance(found, Text):
        return Response(found.body, media_type=found.media_type)
    if route.answer is None or route.answer is type(None):
        return Response(status_code=204)
    return Response(msgspec.json.encode(found), media_type=_JSON)


def read_parameter(name: str, kind: Any, request: Request) -> Any:
    """A piece of the path."""
    text = request.path_params[name]
    _check_text(name, text)
    return _convert(text, kind, name, strict=False)


def read_query(wanted: type[Struct], request: Request) -> Struct:
    """The query string as a Struct; list fields take repeated names or commas."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(wanted)}
    given: dict[str, Any] = {}
    for name in request.query_params:
        if name not in fields:
            known = ", ".join(fields)
            raise BadRequest(name, f"there is no query parameter {name!r}: use {known}")
        values = request.query_params.getlist(name)
        _check_text(name, *values)
        kind = fields[name]
        if _holds(kind, tuple):
            given[name] = [part for value in values for part in value.split(",") if part]
            continue
        if len(values) > 1:
            raise BadRequest(name, f"{name} is given {len(values)} times: give it once")
        if _holds(kind, datetime) and "-" not in values[0]:
            raise BadRequest(name, f"{name}: use a time such as 2026-01-31T09:00:00Z")
        given[name] = values[0]
    return _convert(given, wanted, "query", strict=False)


def read_body(wanted: type[Struct], data: bytes, request: Request) -> Struct:
    """The body as a Struct; it must be JSON and say so."""
    kind = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
    if kind != _JSON:
        raise BadRequest("body", f"the body is {kind}: send application/json")
    try:
        given: Any = msgspec.json.decode(data or b"{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequest("body", f"the body is not JSON: {error}") from error
    if rb"\u0000" in data:
        _check_text("body", *_texts(given))
    return _convert(given, wanted, "body", strict=True)


def _convert(given: Any, wanted: Any, whole: str, *, strict: bool) -> Any:
    try:
        return msgspec.convert(given, wanted, strict=strict)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$")
        field = place.strip("`").lstrip(".") or whole
        raise BadRequest(field, f"{field}: {text}") from error


def _check_text(field: str, *texts: str) -> None:
    if any("\0" in text for text in texts):
        raise BadRequest(field, f"{field} holds a NUL character, which no store can keep")


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, inner in cast("dict[str, Any]", value).items():
                yield name
                yield from _texts(inner)
        case list():
            for inner in cast("list[Any]", value):
                yield from _texts(inner)
        case _:
            return


def _holds(kind: Any, wanted: type) -> bool:
    """Whether a type is, or is a choice with, another one."""
    if kind is wanted or get_origin(kind) is wanted:
        return True
    return any(_holds(part, wanted) for part in get_args(kind) if part is not Ellipsis)


def as_table(routes: list[Route]) -> Mapping[tuple[str, str], Route]:
    """Routes by method and path; a second one of the same place is a mistake."""
    table: dict[tuple[str, str], Route] = {}
    for route in routes:
        place = (route.method, route.path)
        if place in table:
            raise Invalid(f"{route.method} {route.path} is routed twice")
        table[place] = route
    return table
