"""Errors as answers: a status, a stable kind and a text for people, never a driver's words."""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from forge_jobs.core.errors import Conflict, ForgeError, Full, Invalid, NotFound, StoreError
from forge_jobs.kit import redact

from .desk import NotAllowed

_KINDS: Final[tuple[tuple[type[ForgeError], int, str], ...]] = (
    (NotAllowed, 403, "forbidden"),
    (NotFound, 404, "not_found"),
    (Conflict, 409, "conflict"),
    (Full, 507, "full"),
    (StoreError, 503, "storage"),
    (Invalid, 400, "validation"),
)
_AGAIN_S: Final = 5


def status_of(error: ForgeError) -> tuple[int, str]:
    """The HTTP status and the kind of an error."""
    for wanted, status, kind in _KINDS:
        if isinstance(error, wanted):
            return status, kind
    return 409, "conflict"


def as_json(error: ForgeError) -> Response:
    """An error for programs."""
    status, kind = status_of(error)
    body: dict[str, Any] = {"kind": kind, "code": error.code, "msg": redact.text(str(error))}
    field = getattr(error, "field", None)
    if field is not None:
        body["field"] = field
    headers: dict[str, str] = {}
    if status == 503:
        headers["retry-after"] = str(_AGAIN_S)
        body["retry_after_secs"] = _AGAIN_S
    return Response(
        msgspec.json.encode(body), status, media_type="application/json", headers=headers
    )


def plain(status: int, kind: str, text: str) -> Response:
    """An error that no exception stands for."""
    body = msgspec.json.encode({"kind": kind, "code": kind, "msg": text})
    return Response(body, status, media_type="application/json")
