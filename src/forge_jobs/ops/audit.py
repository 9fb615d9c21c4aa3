"""The audit: one entry per operator action, written to the store and to the log."""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Protocol

from forge_jobs.core.audit import AuditEntry
from forge_jobs.core.errors import BadOption, StoreError
from forge_jobs.core.instant import to_datetime
from forge_jobs.store.store import Store

from .views import View

__all__ = [
    "Audit", "AuditEntry", "AuditEntryView", "AuditPage", "LogAudit", "StoreAudit", "read_entries",
]  # fmt: skip

MAX_PAGE: Final = 1_000
MAX_ENTRIES_READ: Final = 5_000
_BATCH: Final = 500

_LOG = logging.getLogger("forge_jobs.audit")


class Audit(Protocol):
    """Receives audit entries."""

    async def record(self, entry: AuditEntry) -> None:
        """Write one entry."""
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


class StoreAudit(LogAudit):
    """Writes each entry to the log and to the store.

    The action is already committed when its entry is written, so an error of the store is logged
    and not raised.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def record(self, entry: AuditEntry) -> None:
        await super().record(entry)
        try:
            await self._store.metrics.record_action(entry)
        except StoreError as error:
            _LOG.warning("an audit entry is in the log only", extra={"code": error.code})


class AuditEntryView(View, frozen=True, kw_only=True):
    """An audit entry for display; ``detail`` holds values such as the number of changed jobs."""

    id: str
    at: datetime
    actor: str
    action: str
    subject: str
    detail: Mapping[str, str | int | float | bool | None]


class AuditPage(View, frozen=True, kw_only=True):
    """Entries, newest first; ``next`` is the cursor of the following page."""

    entries: tuple[AuditEntryView, ...]
    next: str | None


async def read_entries(
    store: Store,
    *,
    actor: str = "",
    action: str = "",
    subject: str = "",
    limit: int = 200,
    after: str | None = None,
) -> AuditPage:
    """Entries, newest first. Each of the three texts must occur in its field. One call reads at
    most 5,000 entries; ``next`` continues after them."""
    if not 1 <= limit <= MAX_PAGE:
        raise BadOption(f"limit={limit} must lie between 1 and {MAX_PAGE:,}: page with the cursor")
    cursor = _parse_cursor(after)
    matches: list[AuditEntryView] = []
    entries_read = 0
    while entries_read < MAX_ENTRIES_READ:
        batch = await store.metrics.actions(limit=_BATCH, after=cursor)
        for entry in batch:
            cursor = entry.id
            if actor in entry.actor and action in entry.action and subject in entry.subject:
                matches.append(_entry_view(entry))
                if len(matches) == limit:
                    more = await store.metrics.actions(limit=1, after=cursor)
                    return AuditPage(entries=tuple(matches), next=str(cursor) if more else None)
        entries_read += len(batch)
        if len(batch) < _BATCH:
            return AuditPage(entries=tuple(matches), next=None)
    return AuditPage(entries=tuple(matches), next=str(cursor))


def _parse_cursor(after: str | None) -> int | None:
    if after is None:
        return None
    if not after.isascii() or not after.isdigit() or len(after) > 18:
        raise BadOption(
            f"after={after!r} is no cursor of the audit: use the one of the page before"
        )
    return int(after)


def _entry_view(entry: AuditEntry) -> AuditEntryView:
    return AuditEntryView(
        id=str(entry.id),
        at=to_datetime(entry.at),
        actor=entry.actor,
        action=entry.action,
        subject=entry.subject,
        detail=entry.detail,
    )
