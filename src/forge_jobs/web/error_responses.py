"""Errors as answers: a status, a stable kind and a text for people, never a driver's words."""

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
_AGAIN_S: Final = 5


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong. ``kind`` follows the status, ``code`` is finer, both are stable; ``msg`` is
    for people."""

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


def as_json(error: ForgeError) -> Response:
    """An error for programs."""
    status, kind = status_of(error)
    problem = Problem(
        kind=kind,
        code=error.code,
        msg=redact.prose(str(error)),
        field=getattr(error, "field", None),
        retry_after_secs=_AGAIN_S if status == 503 else None,
    )
    headers = {"retry-after": str(_AGAIN_S)} if status == 503 else {}
    return _sent(status, problem, headers)


def plain(status: int, kind: str, text: str, headers: dict[str, str] | None = None) -> Response:
    """An error that no exception stands for."""
    return _sent(status, Problem(kind=kind, code=kind, msg=text), headers or {})


def _sent(status: int, problem: Problem, headers: dict[str, str]) -> Response:
    body = msgspec.json.encode(problem)
    return Response(body, status, media_type="application/json", headers=headers)
