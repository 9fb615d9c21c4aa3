"""Signs of life: one locked file per worker process, in ``live`` beside the database.

The lock ends with the process, so that a kill is seen at once; the stamp inside shows one that was
stopped. Its age is taken by the steady clock, which all processes of a machine share: a wall clock
that is set forward makes nobody look dead, one that is set back nobody alive. A long transaction of
some other program blocks neither. Whether a process *is* dead is a row in the database: this module
only shows evidence.
"""

import fcntl
import os
import weakref
import zlib
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.kit.clock import Clock
from forge_jobs.store.processes import ProcessStats

from .database_file import DatabaseFile

_SIZE: Final = 16_384
_MAX_READS: Final = 50


class Sign(Struct, frozen=True):
    """What a process last wrote about itself. ``steady_us`` is the beat by the steady clock; files
    of earlier releases have none."""

    key: int
    lease_s: float
    beat_at: Instant
    stats: ProcessStats = ProcessStats()
    steady_us: int | None = None

    def left_us(self, now: Instant, steady_us: int) -> int:
        """How long the lease still runs; not above 0 when it has run out."""
        lease = round(self.lease_s * SECOND)
        if self.steady_us is None or self.steady_us - steady_us > lease:
            # Not stamped, or by a clock that cannot be ours: the wall clock is all there is.
            return self.beat_at + lease - now
        return self.steady_us + lease - steady_us


# Also those of a process that is only just registering: a forked child lets go of all of them.
_files: "weakref.WeakSet[LiveFile]" = weakref.WeakSet()


class LiveFile:
    """The sign of life of a process that belongs to us: locked from birth to end."""

    def __init__(self, place: DatabaseFile, host_id: str) -> None:
        self._path = _path(place, host_id)
        self._descriptor = -1
        self.sign = Sign(0, 0.0, 0)
        _files.add(self)
        self.create()

    def create(self) -> None:
        """A locked file that nobody can see yet."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._descriptor = os.open(f"{self._path}.new", flags, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def publish(self, sign: Sign) -> None:
        """Show the file under its name; a former life of the same process vanishes with it."""
        self.write(sign)
        with suppress(FileNotFoundError):
            # Already shown when the transaction around this is tried a second time.
            os.rename(f"{self._path}.new", self._path)

    def write(self, sign: Sign) -> None:
        """Replace what is written."""
        self.sign = sign
        _write(self._descriptor, sign)

    def read(self) -> Sign | None:
        """What is written now; None once somebody has taken the file away."""
        return _read(self._descriptor) if self.stands() else None

    def stands(self) -> bool:
        """Whether nobody has taken the file away: that is how a verdict is told."""
        return self._descriptor >= 0 and os.fstat(self._descriptor).st_nlink > 0

    def remove(self) -> None:
        """The process leaves."""
        if self._descriptor < 0:
            return
        if self.stands():
            _unlink(self._path)
        self.let_go()

    def let_go(self) -> None:
        """Close without a trace; in a forked child this leaves the parent's lock alone: it belongs
        to what both descriptors stand for, and is not taken back by closing one of them."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def let_go_of_all() -> None:
    """In a forked child: a copy of a lock would let a dead parent look alive."""
    for file in list(_files):
        file.let_go()


def evidence(place: DatabaseFile, host_id: str) -> Sign | None:
    """What a process shows: its last sign while it holds its lock, None when there is no such one.

    The probe uses a descriptor of its own and a shared lock that is never waited for, so it can
    neither break nor take the lock of the process.
    """
    try:
        descriptor = os.open(_path(place, host_id), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(descriptor)
        return None
    finally:
        os.close(descriptor)


def steady_us(clock: Clock) -> int:
    """What the steady clock of this machine shows."""
    return round(clock.mono() * SECOND)


def renew(place: DatabaseFile, host_id: str, key: int, clock: Clock, stats: ProcessStats) -> bool:
    """Beat for a process whose file another store of ours holds; False when it is not there."""
    sign = evidence(place, host_id)
    if sign is None or sign.key != key:
        return False
    try:
        descriptor = os.open(_path(place, host_id), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        _write(descriptor, Sign(key, sign.lease_s, clock.now(), stats, steady_us(clock)))
    finally:
        os.close(descriptor)
    return True


def condemn(place: DatabaseFile, host_id: str, key: int) -> None:
    """Take the file of a process away that was declared dead, unless a later life owns the name."""
    path = _path(place, host_id)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        sign = _read(descriptor)
        if sign is None or sign.key == key:
            _unlink(path)
    finally:
        os.close(descriptor)


def sweep(place: DatabaseFile) -> None:
    """Remove the files of processes that have ended; they say no more than a missing file."""
    for name in names(place):
        if evidence(place, name) is None:
            _sweep_one(_path(place, name))


def _sweep_one(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # A later life may have taken the name meanwhile: its file is another one, and locked.
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            _unlink(path)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def names(place: DatabaseFile) -> list[str]:
    """Host ids of all files that are there."""
    try:
        found = os.listdir(place.part("live"))
    except FileNotFoundError:
        return []
    return sorted(name for name in found if not name.endswith(".new"))


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _write(descriptor: int, sign: Sign) -> None:
    # Small, so that it goes to memory and never waits for a slow disk.
    text = msgspec.json.encode(sign)
    line = b"%08x %s\n" % (zlib.crc32(text), text)
    os.pwrite(descriptor, line, 0)
    os.ftruncate(descriptor, len(line))


def _read(descriptor: int) -> Sign | None:
    for _ in range(_MAX_READS):
        head, _, text = os.pread(descriptor, _SIZE, 0).partition(b"\n")[0].partition(b" ")
        # Torn when its process is just writing it: look again.
        if head == b"%08x" % zlib.crc32(text):
            return msgspec.json.decode(text, type=Sign)
    return None


def _path(place: DatabaseFile, host_id: str) -> str:
    return place.part("live", host_id)


class Signs:
    """The live files of processes that registered through this store, and looks at all others."""

    def __init__(self, place: DatabaseFile, clock: Clock) -> None:
        self._place = place
        self._clock = clock
        self._own: dict[int, LiveFile] = {}

    def own(self, key: int) -> LiveFile | None:
        return self._own.get(key)

    def adopt(self, key: int, file: LiveFile) -> None:
        """A process registered: its sign of life is ours to renew."""
        self._own[key] = file

    def drop(self, key: int) -> None:
        """A process left, or was told that it is dead."""
        file = self._own.pop(key, None)
        if file is not None:
            file.remove()

    def sign(self, key: int, host_id: str, now: Instant) -> Sign | None:
        """The last sign of a process that has not been killed."""
        own = self._own.get(key)
        if own is not None:
            # Its own writing is fresh enough unless somebody else beat for it.
            return own.sign if self.left_us(own.sign, now) > 0 else own.read()
        sign = evidence(self._place, host_id)
        return sign if sign is not None and sign.key == key else None

    def lives(self, key: int, host_id: str, now: Instant) -> bool:
        """Whether a process is there and its lease has not run out."""
        sign = self.sign(key, host_id, now)
        return sign is not None and self.left_us(sign, now) > 0

    def left_us(self, sign: Sign, now: Instant) -> int:
        """How long the lease behind a sign still runs."""
        return sign.left_us(now, steady_us(self._clock))

    def let_go(self) -> None:
        """Close all of our files: the store closes, or this is a forked child."""
        for file in self._own.values():
            file.let_go()
        self._own.clear()
