"""Who did what: one entry per operator action, kept in the store and written to the log."""

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
    "Audit", "AuditEntry", "AuditLine", "AuditPage", "LogAudit", "StoreAudit", "entries",
]  # fmt: skip

MAX_PAGE: Final = 1_000
MAX_LOOK: Final = 5_000
_STEP: Final = 500

_LOG = logging.getLogger("forge_jobs.audit")


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


class StoreAudit(LogAudit):
    """Keeps each entry in the store, beside the log line.

    What was done stays done if the entry cannot be kept: that is logged and not raised.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def record(self, entry: AuditEntry) -> None:
        await super().record(entry)
        try:
            await self._store.metrics.record_action(entry)
        except StoreError as error:
            _LOG.warning("an audit entry is in the log only", extra={"code": error.code})


class AuditLine(View, frozen=True, kw_only=True):
    """An entry as people read it; ``detail`` holds numbers such as how many jobs were changed."""

    id: str
    at: datetime
    actor: str
    action: str
    subject: str
    detail: Mapping[str, str | int | float | bool | None]


class AuditPage(View, frozen=True, kw_only=True):
    """Entries, newest first; ``next`` is the cursor of the following page."""

    entries: tuple[AuditLine, ...]
    next: str | None


async def entries(
    store: Store,
    *,
    actor: str = "",
    action: str = "",
    subject: str = "",
    limit: int = 200,
    after: str | None = None,
) -> AuditPage:
    """The audit, newest first. Each of the three texts must occur in its field; one call looks at
    no more than 5,000 entries, and ``next`` goes on behind them."""
    if not 1 <= limit <= MAX_PAGE:
        raise BadOption(f"limit={limit} must lie between 1 and {MAX_PAGE:,}: page with the cursor")
    place = _position(after)
    found: list[AuditLine] = []
    looked = 0
    while looked < MAX_LOOK:
        step = await store.metrics.actions(limit=_STEP, after=place)
        for entry in step:
            place = entry.id
            if actor in entry.actor and action in entry.action and subject in entry.subject:
                found.append(_line(entry))
                if len(found) == limit:
                    more = await store.metrics.actions(limit=1, after=place)
                    return AuditPage(entries=tuple(found), next=str(place) if more else None)
        looked += len(step)
        if len(step) < _STEP:
            return AuditPage(entries=tuple(found), next=None)
    return AuditPage(entries=tuple(found), next=str(place))


def _position(after: str | None) -> int | None:
    if after is None:
        return None
    if not after.isascii() or not after.isdigit() or len(after) > 18:
        raise BadOption(
            f"after={after!r} is no cursor of the audit: use the one of the page before"
        )
    return int(after)


def _line(entry: AuditEntry) -> AuditLine:
    return AuditLine(
        id=str(entry.id),
        at=to_datetime(entry.at),
        actor=entry.actor,
        action=entry.action,
        subject=entry.subject,
        detail=entry.detail,
    )
