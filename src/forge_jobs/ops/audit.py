"""The audit: one entry per operator action, written to the store and to the log."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from msgspec import Struct

from forge_jobs.core.audit import MAX_IDS, Actor, AuditEntry, Value, changed_fields
from forge_jobs.core.errors import BadOption, StoreError
from forge_jobs.core.instant import to_datetime
from forge_jobs.kit import redact
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from .store_time import audit_time
from .views import View

__all__ = [
    "Actor", "Audit", "AuditEntry", "AuditEntryView", "AuditPage", "AuditTrail", "LogAudit",
    "Store", "StoreAudit", "field_values", "read_entries",
]  # fmt: skip

MAX_PAGE: Final = 1_000
MAX_ENTRIES_READ: Final = 5_000
_BATCH: Final = 500
_NOTHING: Final[Mapping[str, Value]] = {}

_LOG = logging.getLogger("forge_jobs.audit")


class Audit(Protocol):
    """Receives audit entries."""

    async def record(self, entry: AuditEntry) -> None:
        """Write one entry."""
        ...


class LogAudit:
    """Writes each entry to the ``forge_jobs.audit`` logger."""

    async def record(self, entry: AuditEntry) -> None:
        fields = {
            "actor": entry.actor,
            "role": entry.role,
            "address": entry.address,
            "action": entry.action,
            "subject": entry.subject,
            "detail": dict(entry.detail),
            "before": dict(entry.before) or None,
            "after": dict(entry.after) or None,
        }
        level = logging.WARNING if entry.action.startswith("failed") else logging.INFO
        _LOG.log(level, "operator action", extra=fields)


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


class AuditTrail:
    """Writes the entries of one actor."""

    def __init__(
        self,
        store: Store,
        actor: str | Actor,
        audit: Audit | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.actor = Actor(actor) if isinstance(actor, str) else actor
        self._store = store
        self._audit = audit or StoreAudit(store)
        self._clock = clock

    async def record(
        self,
        action: str,
        subject: str,
        detail: Mapping[str, Value] = _NOTHING,
        *,
        before: Mapping[str, Value] = _NOTHING,
        after: Mapping[str, Value] = _NOTHING,
        ids: Sequence[str] = (),
    ) -> None:
        """Write one entry. Of ``before`` and ``after`` it gets the fields that differ."""
        old, new = changed_fields(before, after)
        entry = AuditEntry(
            at=await audit_time(self._store, self._clock),
            actor=self.actor.name,
            role=self.actor.role,
            address=self.actor.address,
            action=action,
            subject=redact.prose(subject),
            detail=redact.value(dict(detail)),
            before=redact.value(old),
            after=redact.value(new),
            ids=tuple(ids[:MAX_IDS]),
        )
        await self._audit.record(entry)


def field_values(struct: Struct | None, fields: Iterable[str]) -> dict[str, Value]:
    """Fields of a struct as values of an entry; empty without a struct."""
    return {} if struct is None else {name: getattr(struct, name) for name in fields}


class AuditEntryView(View, frozen=True, kw_only=True):
    """An audit entry for display; ``detail`` holds values such as the number of changed jobs.
    ``before`` and ``after`` have the fields that changed; ``ids`` are the first 100 jobs of a bulk
    action. ``role`` and ``address`` are those of the request, None for a command."""

    id: str
    at: datetime
    actor: str
    role: str | None
    address: str | None
    action: str
    subject: str
    detail: Mapping[str, Value]
    before: Mapping[str, Value]
    after: Mapping[str, Value]
    ids: tuple[str, ...]


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
        role=entry.role,
        address=entry.address,
        action=entry.action,
        # again: entries of earlier versions were written with a narrower rule
        subject=redact.prose(entry.subject),
        detail=redact.value(dict(entry.detail)),
        before=redact.value(dict(entry.before)),
        after=redact.value(dict(entry.after)),
        ids=entry.ids,
    )
