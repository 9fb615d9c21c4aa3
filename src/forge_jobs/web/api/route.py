"""Typed routes: the signature of an endpoint defines its parameters, body and response.

An endpoint takes ``context`` first, then path parameters by name, then optionally ``query`` and
``body`` as msgspec Structs, and returns what is sent as JSON. The OpenAPI document is generated
from the same signatures.
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
    """A field of the request is invalid."""

    code = "validation"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class TextBody(Struct, frozen=True):
    """A response that is plain text."""

    body: str
    media_type: str = "text/plain; charset=utf-8"


class Route(Struct, frozen=True, kw_only=True):
    """One operation of the API. ``writes``: it changes something; omitted in read-only mode."""

    method: str
    path: str
    role: Role
    summary: str
    endpoint: Endpoint
    parameters: Mapping[str, Any]
    query: type[Struct] | None
    body: type[Struct] | None
    response_type: Any
    writes: bool


class Routes:
    """Collects the routes of one file."""

    def __init__(self) -> None:
        self.all: list[Route] = []

    def get(self, path: str, *, role: Role = Role.VIEWER) -> Callable[[F], F]:
        """A read."""
        return self._add("GET", path, role, writes=False)

    def post(
        self, path: str, *, role: Role = Role.OPERATOR, writes: bool = True
    ) -> Callable[[F], F]:
        """An action, or with ``writes=False`` a read with a body."""
        return self._add("POST", path, role, writes=writes)

    def put(self, path: str, *, role: Role = Role.OPERATOR) -> Callable[[F], F]:
        """Stores or replaces a resource."""
        return self._add("PUT", path, role, writes=True)

    def delete(self, path: str, *, role: Role = Role.ADMIN) -> Callable[[F], F]:
        """Deletes a resource."""
        return self._add("DELETE", path, role, writes=True)

    def _add(self, method: str, path: str, role: Role, *, writes: bool) -> Callable[[F], F]:
        def register(endpoint: F) -> F:
            hints = get_type_hints(endpoint, include_extras=True)
            response_type = hints.pop("return", None)
            parameters = {
                name: hints[name]
                for name in inspect.signature(endpoint).parameters
                if name not in ("context", "query", "body")
            }
            self.all.append(
                Route(
                    method=method,
                    path=path,
                    role=role,
                    summary=" ".join((inspect.getdoc(endpoint) or "").partition("\n\n")[0].split()),
                    endpoint=endpoint,
                    parameters=parameters,
                    query=hints.get("query"),
                    body=hints.get("body"),
                    response_type=response_type,
                    writes=writes,
                )
            )
            return endpoint

        return register


async def handle(route: Route, context: RequestContext, request: Request) -> Response:
    """Parse the request, call the endpoint, encode its result."""
    arguments: dict[str, Any] = {
        name: read_parameter(name, type_, request) for name, type_ in route.parameters.items()
    }
    if route.query is not None:
        arguments["query"] = read_query(route.query, request)
    if route.body is not None:
        arguments["body"] = read_body(route.body, await request.body(), request)
    result = await route.endpoint(context, **arguments)
    if isinstance(result, TextBody):
        return Response(result.body, media_type=result.media_type)
    if route.response_type is None or route.response_type is type(None):
        return Response(status_code=204)
    return Response(msgspec.json.encode(result), media_type=_JSON)


def read_parameter(name: str, type_: Any, request: Request) -> Any:
    """A path parameter, converted to its type."""
    text = request.path_params[name]
    _reject_nul(name, text)
    return _convert(text, type_, name, strict=False)


def read_query(struct: type[Struct], request: Request) -> Struct:
    """The query string as a Struct; tuple fields accept repeated names or commas."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    given: dict[str, Any] = {}
    for name in request.query_params:
        if name not in fields:
            allowed = ", ".join(fields)
            raise BadRequest(name, f"there is no query parameter {name!r}: use {allowed}")
        values = request.query_params.getlist(name)
        _reject_nul(name, *values)
        type_ = fields[name]
        if _contains_type(type_, tuple):
            given[name] = [part for value in values for part in value.split(",") if part]
            continue
        if len(values) > 1:
            raise BadRequest(name, f"{name} is given {len(values)} times: give it once")
        if _contains_type(type_, datetime) and "-" not in values[0]:
            raise BadRequest(name, f"{name}: use a time such as 2026-01-31T09:00:00Z")
        given[name] = values[0]
    return _convert(given, struct, "query", strict=False)


def read_body(struct: type[Struct], data: bytes, request: Request) -> Struct:
    """The JSON body as a Struct."""
    media_type = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
    if media_type != _JSON:
        raise BadRequest("body", f"the body is {media_type}: send application/json")
    try:
        document: Any = msgspec.json.decode(data or b"{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequest("body", f"the body is not JSON: {error}") from error
    if rb"\u0000" in data:
        _reject_nul("body", *_strings(document))
    return _convert(document, struct, "body", strict=True)


def _convert(value: Any, type_: Any, default_field: str, *, strict: bool) -> Any:
    try:
        return msgspec.convert(value, type_, strict=strict)
    except msgspec.ValidationError as error:
        message, _, location = str(error).partition(" - at `$")
        path = location.strip("`").lstrip(".")
        field = path or default_field
        allowed = _allowed_fields(type_, path) if "unknown field" in message else ()
        remedy = f": use {', '.join(allowed)}" if allowed else ""
        raise BadRequest(field, f"{field}: {message}{remedy}") from error


def _allowed_fields(type_: Any, path: str) -> tuple[str, ...]:
    """The fields of the Struct at a path below a Struct; empty if there is none."""
    for name in filter(None, path.split(".")):
        struct = _struct_in(type_)
        fields = () if struct is None else msgspec.structs.fields(struct)
        known = {field.encode_name: field.type for field in fields}
        type_ = known.get(name.partition("[")[0])
    struct = _struct_in(type_)
    if struct is None:
        return ()
    return tuple(field.encode_name for field in msgspec.structs.fields(struct))


def _struct_in(type_: Any) -> type[Struct] | None:
    """The Struct that a type is, or that a union or annotation contains."""
    if isinstance(type_, type) and issubclass(type_, Struct):
        return type_
    return next(filter(None, map(_struct_in, get_args(type_))), None)


def _reject_nul(field: str, *values: str) -> None:
    if any("\0" in value for value in values):
        raise BadRequest(field, f"{field} holds a NUL character, which no store can keep")


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, inner in cast("dict[str, Any]", value).items():
                yield name
                yield from _strings(inner)
        case list():
            for inner in cast("list[Any]", value):
                yield from _strings(inner)
        case _:
            return


def _contains_type(type_: Any, wanted: type) -> bool:
    """Whether a type is ``wanted`` or a union or annotation that contains it."""
    if type_ is wanted or get_origin(type_) is wanted:
        return True
    return any(_contains_type(part, wanted) for part in get_args(type_) if part is not Ellipsis)


def by_method_and_path(routes: list[Route]) -> Mapping[tuple[str, str], Route]:
    """Routes by method and path; Invalid for a duplicate."""
    table: dict[tuple[str, str], Route] = {}
    for route in routes:
        key = (route.method, route.path)
        if key in table:
            raise Invalid(f"{route.method} {route.path} is routed twice")
        table[key] = route
    return table
