"""Slot shares: how many slots of each queue a process may use; see ``core.shares.share_out``."""

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
from .os.liveness_file import LivenessFiles

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "slot_shares.sql")
_names = msgspec.json.Decoder(list[str]).decode


class SlotShares:
    """Computes shares with the reader first, and writes only if one changes."""

    def __init__(
        self, writer: Writer, reader: Reader, liveness: LivenessFiles, clock: Clock
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._liveness = liveness
        self._clock = clock

    async def share(self, max_slots: int) -> int:
        """Distribute the slots of all queues; returns how many shares changed."""
        if not await self._reader.call(partial(self._would_change, max_slots)):
            return 0
        return await self._writer.call(partial(self._share, max_slots))

    async def release_slots(self, key: int, in_use: Sequence[SlotsInUse]) -> int:
        """Release slots that a process holds beyond its shares; returns how many."""
        return await self._writer.call(partial(_release_slots, key, in_use)) if in_use else 0

    def _would_change(self, max_slots: int, connection: sqlite3.Connection) -> bool:
        return bool(self._changes(connection.execute, self._clock.now(), max_slots))

    def _share(self, max_slots: int, tx: Tx) -> int:
        tx.execute(SQL["delete_orphaned_shares"])
        changes = self._changes(tx.execute, tx.now, max_slots)
        for queue, part in changes:
            tx.execute(SQL["put_share"], (part.process, queue, part.slots, part.held))
        if changes:
            tx.raise_control_version()
        return len(changes)

    def _changes(self, execute: Execute, now: Instant, max_slots: int) -> list[tuple[str, Part]]:
        shares: dict[tuple[int, str], tuple[int, int]] = {
            (process, queue): (slots, held)
            for process, queue, slots, held, _ in execute(SQL["shares"]).fetchall()
        }
        processes = [
            (key, host_id, self._wanted_queues(now, key, host_id, queues, quiet or dead))
            for key, host_id, queues, quiet, dead in execute(SQL["processes"]).fetchall()
        ]
        changes: list[tuple[str, Part]] = []
        for queue, total in execute(SQL["queue_slots"]).fetchall():
            parts = [
                Part(key, host_id, queue in wanted, *shares.get((key, queue), (0, 0)))
                for key, host_id, wanted in processes
                if queue in wanted or (key, queue) in shares
            ]
            changes.extend((queue, part) for part in share_out(total, parts, max_slots=max_slots))
        return changes

    def _wanted_queues(
        self, now: Instant, key: int, host_id: str, queues: str, excluded: int
    ) -> list[str]:
        if excluded or not self._liveness.is_alive(key, host_id, now):
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
        row = tx.row(SQL["share_of"], (key, entry.queue, entry.version))
        if row is None:
            continue
        slots, held = row
        left = min(held, max(slots, entry.running))
        if left < held:
            tx.execute(SQL["set_held"], (key, entry.queue, left))
            freed += held - left
    return freed
