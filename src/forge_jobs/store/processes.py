"""The contract for worker processes: who is alive, who leads, what operators asked of them.

A process is *alive* from ``register`` until ``leave``, until its lease runs out by store time, or
until the backend knows better (on SQLite: its locked file is free, it was killed). Dead is final: a
process that was declared dead, by ``reap`` or ``replaces``, registers anew and gets another key. A
beat that comes late, but before any reaper, renews the lease.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from forge_jobs.core.instant import Instant


class NewProcess(Struct, frozen=True, kw_only=True):
    """A worker process that wants to take part. ``host_id`` is fresh for every boot."""

    host_id: str
    label: str
    queues: tuple[str, ...]
    pid: int
    hostname: str
    version: str = ""
    lease_s: float = 15.0


class ProcessStats(Struct, frozen=True, kw_only=True):
    """What a process tells about itself with each beat."""

    running: int = 0
    slots: Mapping[str, int] = {}
    memory_bytes: int = 0
    cores: float = 0.0
    disk_share: float = 0.0


class Share(Struct, frozen=True):
    """A process's part in the slots of a queue, see ``core.shares``. ``version`` changes with
    ``slots``, so that what a process says can be told from what it said before."""

    slots: int
    held: int
    version: int


class SlotsInUse(Struct, frozen=True):
    """What a process still runs of a queue, told under the version of the share it follows."""

    queue: str
    version: int
    running: int


class HeartbeatReply(Struct, frozen=True):
    """The answer to a beat. ``alive`` False: declared dead, stop working and register anew."""

    alive: bool
    now: Instant


class Control(Struct, frozen=True):
    """What operators want: ``version`` changes with every action on queues and processes;
    ``cancels`` are keys of this process's running jobs that were asked to stop; ``quiet`` asks the
    process to claim nothing more."""

    version: int
    cancels: Sequence[int] = ()
    quiet: bool = False


class ProcessRecord(Struct, frozen=True, kw_only=True):
    """A worker process as people read it."""

    key: int
    host_id: str
    label: str
    queues: tuple[str, ...]
    pid: int
    hostname: str
    version: str
    started_at: Instant
    beat_at: Instant
    lease_s: float
    running: int = 0
    slots: Mapping[str, int] = {}
    memory_bytes: int = 0
    cores: float = 0.0
    disk_share: float = 0.0
    quiet: bool = False
    shares: Mapping[str, Share] = {}


class ProcessStore(Protocol):
    """Who is alive."""

    async def register(self, process: NewProcess, *, replaces: str | None = None) -> int:
        """Take part; the answer is the owner key for claims. ``replaces`` names the host_id of a
        process known to be dead (a parent saw it die): it is declared dead in the same call."""
        ...

    async def heartbeat(self, key: int, stats: ProcessStats) -> HeartbeatReply:
        """Renew the lease. Never revives a process that was declared dead."""
        ...

    async def deregister(self, key: int) -> None:
        """Go in good order: everything still owned is released (attempt given back) and the
        process is gone. Leaving twice is fine."""
        ...

    async def remove_dead(self) -> int:
        """Remove processes that are dead and own nothing any more; how many."""
        ...

    async def all(self) -> list[ProcessRecord]:
        """All living processes, by host_id."""
        ...

    async def control(self, key: int) -> Control:
        """What operators want of this process; cheap enough for twice a second."""
        ...

    async def quiet(self, host_id: str, *, quiet: bool) -> None:
        """Ask a process to stop (or go on) claiming. NotFound if it is not alive."""
        ...

    async def share(self, *, max_slots: int) -> int:
        """Share the slots of all queues with settings out (``core.shares.share_out``); how many
        shares changed.

        Living processes that declared a queue and are not quiet want a part of it, at most
        ``max_slots``. What a process holds counts until it gives it up, leaves, or is declared dead
        and owns no running job any more. A change raises the control version; without a change
        nothing is written.
        """
        ...

    async def release_slots(self, key: int, kept: Sequence[SlotsInUse]) -> int:
        """Hold no more of these queues than the share's slots or what still runs, whichever is
        more; how many slots came free. An entry under another version than the present one, or
        for a process that is not there, changes nothing. Never raises what is held."""
        ...

    async def next_expiry(self) -> Instant | None:
        """The earliest instant at which a living process's lease runs out; None without any."""
        ...

    async def lead(self, name: str, key: int, *, ttl_s: float) -> bool:
        """Take or renew a named leadership; True while this process holds it. One that lasts longer
        than two ``ttl_s`` from now is from before the clock was set back, and free."""
        ...

    async def release_lead(self, name: str, key: int) -> None:
        """Give a leadership up at once; no effect when somebody else holds it."""
        ...
