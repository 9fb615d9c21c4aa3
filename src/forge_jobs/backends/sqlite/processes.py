"""The process contract on SQLite: rows say who was declared dead, locked files who is alive."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.errors import NotFound, Unavailable
from forge_jobs.core.instant import Instant, after
from forge_jobs.kit.clock import Clock
from forge_jobs.store.processes import (
    Control,
    HeartbeatReply,
    NewProcess,
    ProcessRecord,
    ProcessStats,
    Share,
    SlotsInUse,
)

from . import finish, slot_shares, transitions
from .io.reader import Reader
from .io.transaction import Tx
from .io.writer import Writer
from .os import liveness_file
from .os.database_file import DatabaseFile
from .os.liveness_file import LiveFile, Sign, Signs
from .slot_shares import SlotShares
from .transitions import as_json, read_keys

SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "processes.sql")


class SqliteProcesses:
    """Who is alive; see ``forge_jobs.store.processes`` for what each method promises."""

    def __init__(
        self, place: DatabaseFile, writer: Writer, reader: Reader, signs: Signs, clock: Clock
    ) -> None:
        self._place = place
        self._writer = writer
        self._reader = reader
        self._signs = signs
        self._clock = clock
        self._shares = SlotShares(writer, reader, signs, clock)

    async def register(self, process: NewProcess, *, replaces: str | None = None) -> int:
        try:
            file = LiveFile(self._place, process.host_id)
        except OSError as error:
            raise self._mute(error) from error
        try:
            key = await self._writer.call(partial(self._register, process, replaces, file))
        except BaseException:
            file.let_go()
            raise
        self._signs.adopt(key, file)
        return key

    def _register(self, process: NewProcess, replaces: str | None, file: LiveFile, tx: Tx) -> int:
        for host_id in {process.host_id, replaces}:
            if host_id is not None:
                self._condemn_host(tx, host_id)
        key = tx.execute(
            SQL["register"],
            (
                process.host_id, process.label, as_json(process.queues), process.pid,
                process.hostname, process.version, process.lease_s, tx.now,
            ),
        ).lastrowid  # fmt: skip
        # Before the commit: whoever sees the row must find the file.
        file.publish(
            Sign(key, process.lease_s, tx.now, steady_us=liveness_file.steady_us(self._clock))
        )
        return key

    def _condemn_host(self, tx: Tx, host_id: str) -> None:
        known = tx.row(SQL["of_host"], (host_id,))
        if known is not None:
            tx.execute(SQL["condemn_host"], (host_id, tx.now))
            tx.afterwards.append(partial(liveness_file.condemn, self._place, host_id, known[0]))

    async def heartbeat(self, key: int, stats: ProcessStats) -> HeartbeatReply:
        now = self._clock.now()
        file = self._signs.own(key)
        try:
            if file is None:
                return HeartbeatReply(await self._beat_elsewhere(key, stats), now)
            if not file.stands():
                self._signs.drop(key)
                return HeartbeatReply(False, now)
            steady_us = liveness_file.steady_us(self._clock)
            file.write(Sign(key, file.sign.lease_s, now, stats, steady_us))
        except OSError as error:
            raise self._mute(error) from error
        return HeartbeatReply(True, now)

    def _mute(self, error: OSError) -> Unavailable:
        return Unavailable(f"no sign of life can be given in {self._place.directory}: {error}")

    async def _beat_elsewhere(self, key: int, stats: ProcessStats) -> bool:
        """A process that registered through another store object."""
        host_id = await self._reader.call(partial(_host_of, key))
        if host_id is None:
            return False
        return liveness_file.renew(self._place, host_id, key, self._clock, stats)

    async def deregister(self, key: int) -> None:
        await self._writer.call(partial(_leave, key))
        self._signs.drop(key)

    async def remove_dead(self) -> int:
        gone = await self._reader.call(_buried)
        buried = await self._writer.call(self._bury) if gone else 0
        liveness_file.sweep(self._place)
        return buried

    def _bury(self, tx: Tx) -> int:
        gone = tx.execute(SQL["buried"]).fetchall()
        for key, host_id in gone:
            tx.execute(SQL["leave"], (key,))
            tx.execute(SQL["leave_leads"], (key,))
            tx.execute(SQL["leave_cancels"], (key,))
            tx.execute(slot_shares.SQL["drop_shares"], (key,))
            tx.afterwards.append(partial(liveness_file.condemn, self._place, host_id, key))
        return len(gone)

    async def all(self) -> list[ProcessRecord]:
        now = self._clock.now()
        rows, parts = await self._reader.call(_records)
        found: list[ProcessRecord] = []
        for key, host_id, label, queues, pid, hostname, version, lease_s, started_at, quiet in rows:
            sign = self._signs.sign(key, host_id, now)
            if sign is None or self._signs.left_us(sign, now) <= 0:
                continue
            found.append(
                ProcessRecord(
                    key=key,
                    host_id=host_id,
                    label=label,
                    queues=tuple(msgspec.json.decode(queues, type=list[str])),
                    pid=pid,
                    hostname=hostname,
                    version=version,
                    started_at=started_at,
                    beat_at=sign.beat_at,
                    lease_s=lease_s,
                    running=sign.stats.running,
                    slots=dict(sign.stats.slots),
                    memory_bytes=sign.stats.memory_bytes,
                    cores=sign.stats.cores,
                    disk_share=sign.stats.disk_share,
                    quiet=bool(quiet),
                    shares=parts.get(key, {}),
                )
            )
        return found

    async def control(self, key: int) -> Control:
        version, cancels, quiet = await self._reader.call(partial(_control, key))
        return Control(version, read_keys(cancels), bool(quiet))

    async def quiet(self, host_id: str, *, quiet: bool) -> None:
        await self._writer.call(partial(self._quiet, host_id, quiet))

    def _quiet(self, host_id: str, quiet: bool, tx: Tx) -> None:
        known = tx.row(SQL["of_host"], (host_id,))
        if known is None or not self._signs.lives(known[0], host_id, tx.now):
            raise NotFound(f"no living worker process has the host_id {host_id!r}")
        tx.execute(SQL["set_quiet"], (known[0], quiet))
        tx.operate()

    async def share(self, *, max_slots: int) -> int:
        return await self._shares.share(max_slots)

    async def release_slots(self, key: int, in_use: Sequence[SlotsInUse]) -> int:
        return await self._shares.release_slots(key, in_use)

    async def next_expiry(self) -> Instant | None:
        now = self._clock.now()
        standing = await self._reader.call(_lease_of)
        signs = [self._signs.sign(key, host_id, now) for key, host_id in standing]
        left = [self._signs.left_us(sign, now) for sign in signs if sign is not None]
        return min((now + one for one in left if one > 0), default=None)

    async def lead(self, name: str, key: int, *, ttl_s: float) -> bool:
        return await self._writer.call(partial(self._lead, name, key, ttl_s))

    def _lead(self, name: str, key: int, ttl_s: float, tx: Tx) -> bool:
        host = tx.row(SQL["host_of"], (key,))
        if host is None or not self._signs.lives(key, host[0], tx.now):
            return False
        until = after(tx.now, ttl_s)
        return tx.execute(SQL["take_lead"], (name, key, until, tx.now)).rowcount == 1

    async def release_lead(self, name: str, key: int) -> None:
        await self._writer.call(lambda tx: tx.execute(SQL["drop_lead"], (name, key)))


def dead(signs: Signs, standing: list[tuple[int, str]], now: Instant) -> list[tuple[int, str]]:
    """The processes among these that show no sign of life."""
    return [(key, host_id) for key, host_id in standing if not signs.lives(key, host_id, now)]


def _leave(key: int, tx: Tx) -> None:
    (owned,) = tx.row(transitions.SQL["owned_by"], (key,))
    if owned != "[]":
        rows = transitions.load_text(tx, owned)
        for row in rows.values():
            finish.release(tx, row)
        transitions.store(tx, list(rows.values()))
    tx.execute(SQL["leave"], (key,))
    tx.execute(SQL["leave_leads"], (key,))
    tx.execute(SQL["leave_cancels"], (key,))
    tx.execute(slot_shares.SQL["drop_shares"], (key,))


def _lease_of(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    return connection.execute(SQL["standing"]).fetchall()


def _records(
    connection: sqlite3.Connection,
) -> tuple[list[Any], dict[int, dict[str, Share]]]:
    return connection.execute(SQL["records"]).fetchall(), slot_shares.by_process(connection)


def _buried(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    return connection.execute(SQL["buried"]).fetchall()


def _host_of(key: int, connection: sqlite3.Connection) -> str | None:
    found = connection.execute(SQL["host_of"], (key,)).fetchone()
    return None if found is None else found[0]


def _control(key: int, connection: sqlite3.Connection) -> tuple[int, str, int]:
    return connection.execute(SQL["control"], (key,)).fetchone()
