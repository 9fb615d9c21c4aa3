"""An entry of the audit: who did what to what, and what became of it."""

from collections.abc import Mapping

from msgspec import Struct

from .instant import Instant


class AuditEntry(Struct, frozen=True, kw_only=True):
    """``action`` is a verb such as ``retry``; ``subject`` what it was done to; never a payload.
    ``id`` is the store's, and rises."""

    at: Instant
    actor: str
    action: str
    subject: str
    detail: Mapping[str, str | int | float | bool | None] = {}
    id: int = 0
