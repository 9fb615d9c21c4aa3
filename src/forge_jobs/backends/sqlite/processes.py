"""The process contract on SQLite: rows hold who was declared dead, liveness files who is alive."""

import logging
import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from forge_jobs.backends.shared.rowwise import finish, steps
from forge_jobs.backends.shared.sql_text import SqlText
from forge_jobs.core.errors import NotFound, Unavailable
from forge_jobs.core.instant import Instant, after
from forge_jobs.core.kind_signature import KindSignature
from forge_jobs.kit.clock import Clock
from forge_jobs.store.processes import (
    Control,
    HeartbeatReply,
    NewProcess,
    ProcessRecord,
    ProcessSignature,
    ProcessStats,
    Share,
    SlotsInUse,
)

from . import slot_shares
from .io.reader import Reader
from .io.transaction import ROWS_SQL, Tx
from .io.writer import Writer
from .json_text import as_json, read_keys
from .os import liveness_file
from .os.database_file import DatabaseFile
from .os.liveness_file import LivenessFile, LivenessFiles, LivenessRecord
from .slot_shares import SlotShares

_names_of = msgspec.json.Decoder(list[str]).decode
_signature_of = msgspec.json.Decoder(KindSignature).decode
SQL: Final = SqlText.load("forge_jobs.backends.sqlite.sql", "processes.sql")
_LOG: Final = logging.getLogger("forge_jobs.sqlite")


class SqliteProcesses:
    """Stores registrations; see ``forge_jobs.store.processes`` for the contract of each method."""

    def __init__(
        self,
        database: DatabaseFile,
        writer: Writer,
        reader: Reader,
        liveness: LivenessFiles,
        clock: Clock,
    ) -> None:
        self._database = database
        self._writer = writer
        self._reader = reader
        self._liveness = liveness
        self._clock = clock
        self._shares = SlotShares(writer, reader, liveness, clock)

    async def register(self, process: NewProcess, *, replaces: str | None = None) -> int:
        try:
            file = LivenessFile(self._database, process.host_id)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            key = await self._writer.call(partial(self._register, process, replaces, file))
        except BaseException:
            file.close()
            raise
        self._liveness.add(key, file)
        return key

    def _register(
        self, process: NewProcess, replaces: str | None, file: LivenessFile, tx: Tx
    ) -> int:
        for host_id in {process.host_id, replaces}:
            if host_id is not None:
                self._mark_host_dead(tx, host_id)
        key = tx.execute(
            SQL["register"],
            (
                process.host_id, process.label, as_json(process.queues), process.pid,
                process.hostname, process.version, process.lease_s, tx.now,
                as_json(dict(process.signatures)),
            ),
        ).lastrowid  # fmt: skip
        # Before the commit: a process that reads the row must find the file.
        monotonic_us = liveness_file.monotonic_us(self._clock)
        file.publish(LivenessRecord(key, process.lease_s, tx.now, monotonic_us=monotonic_us))
        return key

    def _mark_host_dead(self, tx: Tx, host_id: str) -> None:
        known = tx.row(SQL["key_of_host"], (host_id,))
        if known is not None:
            tx.execute(SQL["mark_host_dead"], (host_id, tx.now))
            tx.after_commit.append(
                partial(liveness_file.remove_file, self._database, host_id, known[0])
            )

    async def heartbeat(self, key: int, stats: ProcessStats) -> HeartbeatReply:
        now = self._clock.now()
        file = self._liveness.own(key)
        self._writer.check_file()
        try:
            if file is None:
                return HeartbeatReply(await self._renew_foreign(key, stats), now)
            if not file.exists():
                # Removed by whoever declared this process dead; or by mistake, then it is restored.
                if not await self._reader.call(partial(_is_presumed_alive, key)):
                    self._liveness.remove(key)
                    return HeartbeatReply(False, now)
                _LOG.warning(
                    "%s was removed while it was in use; made again", self._database.directory
                )
                file.restore()
            monotonic_us = liveness_file.monotonic_us(self._clock)
            file.write(LivenessRecord(key, file.record.lease_s, now, stats, monotonic_us))
        except OSError as error:
            raise self._unwritable(error) from error
        return HeartbeatReply(True, now)

    def _unwritable(self, error: OSError) -> Unavailable:
        return Unavailable(f"no heartbeat can be written in {self._database.directory}: {error}")

    async def _renew_foreign(self, key: int, stats: ProcessStats) -> bool:
        """Write a heartbeat for a process that registered through another store object."""
        host_id = await self._reader.call(partial(_host_of_key, key))
        if host_id is None:
            return False
        return liveness_file.renew(self._database, host_id, key, self._clock, stats)

    async def deregister(self, key: int) -> None:
        await self._writer.call(partial(_deregister, key))
        self._liveness.remove(key)

    async def remove_dead(self) -> int:
        dead = await self._reader.call(_dead_without_jobs)
        deleted = await self._writer.call(self._delete_dead) if dead else 0
        presumed_alive = await self._reader.call(_presumed_alive)
        liveness_file.remove_stale_files(self._database, {host_id for _, host_id in presumed_alive})
        return deleted

    def _delete_dead(self, tx: Tx) -> int:
        dead = tx.execute(SQL["dead_without_jobs"]).fetchall()
        for key, host_id in dead:
            tx.execute(SQL["delete_process"], (key,))
            tx.execute(SQL["delete_leads"], (key,))
            tx.execute(SQL["delete_cancels"], (key,))
            tx.execute(slot_shares.SQL["delete_shares"], (key,))
            tx.after_commit.append(partial(liveness_file.remove_file, self._database, host_id, key))
        return len(dead)

    async def all(self) -> list[ProcessRecord]:
        now = self._clock.now()
        rows, shares = await self._reader.call(_records)
        found: list[ProcessRecord] = []
        for key, host_id, label, queues, pid, hostname, version, lease_s, started_at, quiet in rows:
            record = self._liveness.record(key, host_id, now)
            if record is None or self._liveness.remaining_us(record, now) <= 0:
                continue
            found.append(
                ProcessRecord(
                    key=key,
                    host_id=host_id,
                    label=label,
                    queues=tuple(_names_of(queues)),
                    pid=pid,
                    hostname=hostname,
                    version=version,
                    started_at=started_at,
                    beat_at=record.beat_at,
                    lease_s=lease_s,
                    running=record.stats.running,
                    slots=dict(record.stats.slots),
                    memory_bytes=record.stats.memory_bytes,
                    cores=record.stats.cores,
                    disk_share=record.stats.disk_share,
                    quiet=bool(quiet),
                    shares=shares.get(key, {}),
                )
            )
        return found

    async def signatures(self, kind: str) -> list[ProcessSignature]:
        now = self._clock.now()
        return [
            ProcessSignature(key, tuple(_names_of(queues)), _signature_of(signature))
            for key, host_id, queues, signature in await self._reader.call(
                partial(_signatures, kind)
            )
            if self._liveness.is_alive(key, host_id, now)
        ]

    async def control(self, key: int) -> Control:
        version, cancels, quiet = await self._reader.call(partial(_control, key))
        return Control(version, read_keys(cancels), bool(quiet))

    async def quiet(self, host_id: str, *, quiet: bool) -> None:
        await self._writer.call(partial(self._quiet, host_id, quiet))

    def _quiet(self, host_id: str, quiet: bool, tx: Tx) -> None:
        known = tx.row(SQL["key_of_host"], (host_id,))
        if known is None or not self._liveness.is_alive(known[0], host_id, tx.now):
            raise NotFound(f"no living worker process has the host_id {host_id!r}")
        tx.execute(SQL["set_quiet"], (known[0], quiet))
        tx.raise_control_version()

    async def share(self, *, max_slots: int) -> int:
        return await self._shares.share(max_slots)

    async def release_slots(self, key: int, in_use: Sequence[SlotsInUse]) -> int:
        return await self._shares.release_slots(key, in_use)

    async def next_expiry(self) -> Instant | None:
        now = self._clock.now()
        presumed_alive = await self._reader.call(_presumed_alive)
        records = [self._liveness.record(key, host_id, now) for key, host_id in presumed_alive]
        leases_us = [self._liveness.remaining_us(record, now) for record in records if record]
        return min((now + left_us for left_us in leases_us if left_us > 0), default=None)

    async def lead(self, name: str, key: int, *, ttl_s: float) -> bool:
        return await self._writer.call(partial(self._lead, name, key, ttl_s))

    def _lead(self, name: str, key: int, ttl_s: float, tx: Tx) -> bool:
        host = tx.row(SQL["host_of_key"], (key,))
        if host is None or not self._liveness.is_alive(key, host[0], tx.now):
            return False
        until = after(tx.now, ttl_s)
        return tx.execute(SQL["take_lead"], (name, key, until, tx.now)).rowcount == 1

    async def release_lead(self, name: str, key: int) -> None:
        await self._writer.call(lambda tx: tx.execute(SQL["release_lead"], (name, key)))


def find_dead(
    liveness: LivenessFiles, presumed_alive: list[tuple[int, str]], now: Instant
) -> list[tuple[int, str]]:
    """Those of the given processes whose lock is gone or whose lease has expired."""
    return [
        (key, host_id)
        for key, host_id in presumed_alive
        if not liveness.is_alive(key, host_id, now)
    ]


def _deregister(key: int, tx: Tx) -> None:
    (owned,) = tx.row(ROWS_SQL["owned_by"], (key,))
    if owned != "[]":
        rows = list(tx.load_text(owned).values())
        steps.mark_found(tx, rows)
        for row in rows:
            finish.release(tx, row)
        tx.store(rows)
    tx.execute(SQL["delete_process"], (key,))
    tx.execute(SQL["delete_leads"], (key,))
    tx.execute(SQL["delete_cancels"], (key,))
    tx.execute(slot_shares.SQL["delete_shares"], (key,))


def _presumed_alive(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    return connection.execute(SQL["presumed_alive"]).fetchall()


def _is_presumed_alive(key: int, connection: sqlite3.Connection) -> bool:
    return any(key == other for other, _ in _presumed_alive(connection))


def _records(
    connection: sqlite3.Connection,
) -> tuple[list[Any], dict[int, dict[str, Share]]]:
    return connection.execute(SQL["records"]).fetchall(), slot_shares.by_process(connection)


def _dead_without_jobs(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    return connection.execute(SQL["dead_without_jobs"]).fetchall()


def _host_of_key(key: int, connection: sqlite3.Connection) -> str | None:
    found = connection.execute(SQL["host_of_key"], (key,)).fetchone()
    return None if found is None else found[0]


def _control(key: int, connection: sqlite3.Connection) -> tuple[int, str, int]:
    return connection.execute(SQL["control"], (key,)).fetchone()


def _signatures(kind: str, connection: sqlite3.Connection) -> list[tuple[int, str, str, str]]:
    return connection.execute(SQL["signatures"], (kind,)).fetchall()
