"""Liveness files: one locked file per worker process, in ``live`` beside the database.

The lock ends with the process, so a kill is detected at once; the heartbeat in the file expires if
the process is stopped. Leases are measured by the monotonic clock, which all processes of a machine
share: a wall clock that is set forward makes no process look dead, one that is set back makes none
look alive. A long transaction of another program blocks neither. Whether a process *is* dead is
decided by its row in the database: this module only provides the evidence.
"""

import fcntl
import os
import weakref
import zlib
from collections.abc import Collection
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.kit.clock import Clock
from forge_jobs.store.processes import ProcessStats

from .database_file import DatabaseFile

_MAX_BYTES: Final = 16_384
_MAX_READS: Final = 50
# Of a process whose file was missing from the first look on.
_UNKNOWN_LEASE_S: Final = 15.0


class LivenessRecord(Struct, frozen=True):
    """The last heartbeat of a process. ``beat_at`` is its store time, ``monotonic_us`` the same by
    the monotonic clock, if known."""

    key: int
    lease_s: float
    beat_at: Instant
    stats: ProcessStats = ProcessStats()
    monotonic_us: int | None = None

    def remaining_us(self, now: Instant, monotonic_us: int) -> int:
        """The time left of the lease; 0 or less when it has expired."""
        lease = round(self.lease_s * SECOND)
        if self.monotonic_us is None or self.monotonic_us - monotonic_us > lease:
            # Unknown, or from another boot of the machine: only the wall clock is left.
            return self.beat_at + lease - now
        return self.monotonic_us + lease - monotonic_us


# Includes files of processes that are still registering: a forked child closes all of them.
_files: "weakref.WeakSet[LivenessFile]" = weakref.WeakSet()


class LivenessFile:
    """The liveness file of a process that registered here: locked from its creation on."""

    def __init__(self, database: DatabaseFile, host_id: str) -> None:
        self._path = _path(database, host_id)
        self._descriptor = -1
        self.record = LivenessRecord(0, 0.0, 0)
        _files.add(self)
        self.create()

    def create(self) -> None:
        """Create and lock the file under a temporary name."""
        os.makedirs(os.path.dirname(self._path), 0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._descriptor = os.open(f"{self._path}.new", flags, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def publish(self, record: LivenessRecord) -> None:
        """Rename the file to its final name; replaces the file of a former registration."""
        self.write(record)
        with suppress(FileNotFoundError):
            # Already renamed if the transaction around this is retried.
            os.rename(f"{self._path}.new", self._path)

    def restore(self) -> None:
        """Make the file again after somebody removed it, with the same record."""
        self.close()
        self.create()
        self.publish(self.record)

    def write(self, record: LivenessRecord) -> None:
        """Replace the record."""
        self.record = record
        _write(self._descriptor, record)

    def read(self) -> LivenessRecord | None:
        """The stored record; None once the file was removed."""
        return _read(self._descriptor) if self.exists() else None

    def exists(self) -> bool:
        """Whether the file was not removed: removal tells a process that it was declared dead."""
        return self._descriptor >= 0 and os.fstat(self._descriptor).st_nlink > 0

    def remove(self) -> None:
        """Remove the file, when the process deregisters."""
        if self._descriptor < 0:
            return
        if self.exists():
            _unlink(self._path)
        self.close()

    def close(self) -> None:
        """Close the descriptor and leave the file. In a forked child this does not unlock the
        parent's file: the lock belongs to the open file description that both share."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def close_all() -> None:
    """In a forked child: an inherited lock would make a dead parent look alive."""
    for file in list(_files):
        file.close()


def probe(database: DatabaseFile, host_id: str) -> LivenessRecord | None:
    """The record of a process that holds its lock; None if it holds none or has no file."""
    try:
        return _probe(database, host_id)
    except FileNotFoundError:
        return None


def _probe(database: DatabaseFile, host_id: str) -> LivenessRecord | None:
    """The same; FileNotFoundError if there is no file.

    The probe uses a descriptor of its own and a non-blocking shared lock, so it can neither break
    nor take the lock of the process.
    """
    descriptor = os.open(_path(database, host_id), os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(descriptor)
        return None
    finally:
        os.close(descriptor)


def monotonic_us(clock: Clock) -> int:
    """The monotonic clock of this machine."""
    return round(clock.mono() * SECOND)


def renew(
    database: DatabaseFile, host_id: str, key: int, clock: Clock, stats: ProcessStats
) -> bool:
    """Write a heartbeat for a process whose file another store object holds; False without it."""
    record = probe(database, host_id)
    if record is None or record.key != key:
        return False
    try:
        descriptor = os.open(_path(database, host_id), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        beat = LivenessRecord(key, record.lease_s, clock.now(), stats, monotonic_us(clock))
        _write(descriptor, beat)
    finally:
        os.close(descriptor)
    return True


def remove_file(database: DatabaseFile, host_id: str, key: int) -> None:
    """Remove the file of a process that was declared dead, unless a later registration owns it."""
    path = _path(database, host_id)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        record = _read(descriptor)
        if record is None or record.key == key:
            _unlink(path)
    finally:
        os.close(descriptor)


def remove_stale_files(database: DatabaseFile, presumed_alive: Collection[str]) -> None:
    """Remove the files of processes that have ended, unless their death is not known yet: an
    unlocked file proves it, a missing one does not."""
    for host_id in host_ids(database):
        if host_id not in presumed_alive and probe(database, host_id) is None:
            _remove_stale_file(_path(database, host_id))


def _remove_stale_file(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # A later registration may own the name by now: its file is another one, and locked.
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            _unlink(path)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def host_ids(database: DatabaseFile) -> list[str]:
    """Host ids of all liveness files."""
    try:
        found = os.listdir(database.part("live"))
    except FileNotFoundError:
        return []
    return sorted(name for name in found if not name.endswith(".new"))


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _write(descriptor: int, record: LivenessRecord) -> None:
    # Small, so that it is written to the page cache and never waits for a slow disk.
    text = msgspec.json.encode(record)
    line = b"%08x %s\n" % (zlib.crc32(text), text)
    os.pwrite(descriptor, line, 0)
    os.ftruncate(descriptor, len(line))


def _read(descriptor: int) -> LivenessRecord | None:
    for _ in range(_MAX_READS):
        head, _, text = os.pread(descriptor, _MAX_BYTES, 0).partition(b"\n")[0].partition(b" ")
        # Torn while its process is writing it: read again.
        if head == b"%08x" % zlib.crc32(text):
            return msgspec.json.decode(text, type=LivenessRecord)
    return None


def _path(database: DatabaseFile, host_id: str) -> str:
    return database.part("live", host_id)


class LivenessFiles:
    """Holds the liveness files of processes that registered through this store, and probes those
    of all others."""

    def __init__(self, database: DatabaseFile, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._own: dict[int, LivenessFile] = {}
        self._seen: dict[int, LivenessRecord] = {}

    def own(self, key: int) -> LivenessFile | None:
        return self._own.get(key)

    def add(self, key: int, file: LivenessFile) -> None:
        """Keep the file of a process that registered here."""
        self._own[key] = file

    def remove(self, key: int) -> None:
        """Remove the file of a process that deregistered or was declared dead."""
        file = self._own.pop(key, None)
        if file is not None:
            file.remove()

    def record(self, key: int, host_id: str, now: Instant) -> LivenessRecord | None:
        """The last record of a process that still runs."""
        own = self._own.get(key)
        if own is not None:
            # The record in memory is current unless another store object wrote a heartbeat.
            return own.record if self.remaining_us(own.record, now) > 0 else own.read()
        try:
            record = _probe(self._database, host_id)
        except FileNotFoundError:
            return self._last_seen(key, now)
        if record is None or record.key != key:
            self._seen.pop(key, None)
            return None
        self._seen[key] = record
        return record

    def _last_seen(self, key: int, now: Instant) -> LivenessRecord:
        """The last record that was read of a process whose file is missing.

        No process dies by that: somebody removed the directory, and the process makes its file
        again with its next heartbeat. If it has ended, its lease runs out.
        """
        if key not in self._seen:
            self._seen[key] = LivenessRecord(
                key, _UNKNOWN_LEASE_S, now, monotonic_us=monotonic_us(self._clock)
            )
        return self._seen[key]

    def is_alive(self, key: int, host_id: str, now: Instant) -> bool:
        """Whether a process runs and its lease has not expired."""
        record = self.record(key, host_id, now)
        return record is not None and self.remaining_us(record, now) > 0

    def remaining_us(self, record: LivenessRecord, now: Instant) -> int:
        """The time left of a record's lease."""
        return record.remaining_us(now, monotonic_us(self._clock))

    def close(self) -> None:
        """Close all files: the store closes, or this is a forked child."""
        for file in self._own.values():
            file.close()
        self._own.clear()
