"""Who did what: one entry per operator action.

For now an entry becomes a structured log line; a store of entries can take its place behind the
same port.
"""

import logging
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from forge_jobs.core.instant import Instant

_LOG = logging.getLogger("forge_jobs.audit")


class AuditEntry(Struct, frozen=True, kw_only=True):
    """``action`` is a verb such as ``retry``; ``subject`` what it was done to; never a payload."""

    at: Instant
    actor: str
    action: str
    subject: str
    detail: Mapping[str, str | int | float | bool | None] = {}


class Audit(Protocol):
    """Where entries go."""

    async def record(self, entry: AuditEntry) -> None:
        """Keep one entry."""
        ...


class LogAudit:
    """Writes each entry to the ``forge_jobs.audit`` logger."""

    async def record(self, entry: AuditEntry) -> None:
        _LOG.info(
            "operator action",
            extra={
                "actor": entry.actor,
                "action": entry.action,
                "subject": entry.subject,
                "detail": dict(entry.detail),
            },
        )
