"""Maps errors to HTTP responses: status, stable kind and message, without driver details."""

from typing import Final

import msgspec
from msgspec import Struct
from starlette.responses import Response

from forge_jobs.core.errors import Conflict, ForgeError, Full, Invalid, NotFound, StoreError
from forge_jobs.kit import redact

from .request_context import NotAllowed

_KINDS: Final[tuple[tuple[type[ForgeError], int, str], ...]] = (
    (NotAllowed, 403, "forbidden"),
    (NotFound, 404, "not_found"),
    (Conflict, 409, "conflict"),
    (Full, 507, "full"),
    (StoreError, 503, "storage"),
    (Invalid, 400, "validation"),
)
_RETRY_AFTER_S: Final = 5


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error. ``kind`` follows the status, ``code`` is more specific, both are stable; ``msg`` is
    a text for people."""

    kind: str
    code: str
    msg: str
    field: str | None = None
    retry_after_secs: int | None = None


def status_of(error: ForgeError) -> tuple[int, str]:
    """The HTTP status and the kind of an error."""
    for wanted, status, kind in _KINDS:
        if isinstance(error, wanted):
            return status, kind
    return 409, "conflict"


def error_response(error: ForgeError) -> Response:
    """The JSON response to an error."""
    status, kind = status_of(error)
    problem = Problem(
        kind=kind,
        code=error.code,
        msg=redact.prose(str(error)),
        field=getattr(error, "field", None),
        retry_after_secs=_RETRY_AFTER_S if status == 503 else None,
    )
    headers = {"retry-after": str(_RETRY_AFTER_S)} if status == 503 else {}
    return _json_response(status, problem, headers)


def problem_response(
    status: int, kind: str, text: str, headers: dict[str, str] | None = None
) -> Response:
    """A JSON error response without an exception."""
    return _json_response(status, Problem(kind=kind, code=kind, msg=text), headers or {})


def _json_response(status: int, problem: Problem, headers: dict[str, str]) -> Response:
    body = msgspec.json.encode(problem)
    return Response(body, status, media_type="application/json", headers=headers)
