"""Who may use how many slots of which queue; the rule itself is ``core.shares.share_out``."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.instant import Instant
from forge_jobs.core.shares import Part, share_out
from forge_jobs.kit.clock import Clock
from forge_jobs.store.processes import Share, SlotsInUse

from .counters import Execute
from .io.reader import Reader
from .io.transaction import Tx
from .io.writer import Writer
from .os.liveness_file import Signs

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "slot_shares.sql")
_names = msgspec.json.Decoder(list[str]).decode


class SlotShares:
    """Looks first and writes only if something changes."""

    def __init__(self, writer: Writer, reader: Reader, signs: Signs, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._signs = signs
        self._clock = clock

    async def share(self, max_slots: int) -> int:
        """Share everything out; how many shares changed."""
        if not await self._reader.call(partial(self._would_change, max_slots)):
            return 0
        return await self._writer.call(partial(self._share, max_slots))

    async def release_slots(self, key: int, in_use: Sequence[SlotsInUse]) -> int:
        """A process holds less; how much came free."""
        return await self._writer.call(partial(_release_slots, key, in_use)) if in_use else 0

    def _would_change(self, max_slots: int, connection: sqlite3.Connection) -> bool:
        return bool(self._changes(connection.execute, self._clock.now(), max_slots))

    def _share(self, max_slots: int, tx: Tx) -> int:
        tx.execute(SQL["drop_lost_shares"])
        changes = self._changes(tx.execute, tx.now, max_slots)
        for queue, part in changes:
            tx.execute(SQL["grant"], (part.process, queue, part.slots, part.held))
        if changes:
            tx.operate()
        return len(changes)

    def _changes(self, execute: Execute, now: Instant, max_slots: int) -> list[tuple[str, Part]]:
        had: dict[tuple[int, str], tuple[int, int]] = {
            (process, queue): (slots, held)
            for process, queue, slots, held, _ in execute(SQL["shares"]).fetchall()
        }
        sharers = [
            (key, host_id, self._wants(now, key, host_id, queues, quiet or dead))
            for key, host_id, queues, quiet, dead in execute(SQL["sharers"]).fetchall()
        ]
        changes: list[tuple[str, Part]] = []
        for queue, total in execute(SQL["totals"]).fetchall():
            parts = [
                Part(key, host_id, queue in wanted, *had.get((key, queue), (0, 0)))
                for key, host_id, wanted in sharers
                if queue in wanted or (key, queue) in had
            ]
            changes.extend((queue, part) for part in share_out(total, parts, max_slots=max_slots))
        return changes

    def _wants(self, now: Instant, key: int, host_id: str, queues: str, out: int) -> list[str]:
        if out or not self._signs.lives(key, host_id, now):
            return []
        return _names(queues)


def by_process(connection: sqlite3.Connection) -> dict[int, dict[str, Share]]:
    """The shares of every process."""
    found: dict[int, dict[str, Share]] = {}
    rows: list[Any] = connection.execute(SQL["shares"]).fetchall()
    for process, queue, slots, held, version in rows:
        found.setdefault(process, {})[queue] = Share(slots, held, version)
    return found


def _release_slots(key: int, in_use: Sequence[SlotsInUse], tx: Tx) -> int:
    freed = 0
    for entry in in_use:
        row = tx.row(SQL["held"], (key, entry.queue, entry.version))
        if row is None:
            continue
        slots, held = row
        left = min(held, max(slots, entry.running))
        if left < held:
            tx.execute(SQL["hold"], (key, entry.queue, left))
            freed += held - left
    return freed
