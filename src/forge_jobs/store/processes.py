"""The contract for worker processes: registrations, leases, slot shares, leaderships.

A process is *alive* from ``register`` until the first of:

* ``deregister``;
* the end of its lease, by store time;
* the moment the backend knows that it was killed (SQLite: its liveness file is unlocked).

A process that was declared dead, by ``reap`` or ``replaces``, stays dead; it has to register again
and gets another key. A late heartbeat that arrives before any reaper renews the lease.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from forge_jobs.core.instant import Instant
from forge_jobs.core.kind_signature import KindSignature


class NewProcess(Struct, frozen=True, kw_only=True):
    """The registration of a worker process. ``host_id`` is new with every start. ``signatures``:
    what it takes, by kind; never changed afterwards."""

    host_id: str
    label: str
    queues: tuple[str, ...]
    pid: int
    hostname: str
    version: str = ""
    lease_s: float = 15.0
    signatures: Mapping[str, KindSignature] = {}


class ProcessStats(Struct, frozen=True, kw_only=True):
    """What a process reports about itself with each heartbeat."""

    running: int = 0
    slots: Mapping[str, int] = {}
    memory_bytes: int = 0
    cores: float = 0.0
    disk_share: float = 0.0


class Share(Struct, frozen=True):
    """The slot share of a process in a queue; see ``core.shares``.

    ``version`` changes with ``slots``, so that a report about an older share is recognised.
    """

    slots: int
    held: int
    version: int


class SlotsInUse(Struct, frozen=True):
    """How many jobs of a queue a process still runs, under the version of the share it has read."""

    queue: str
    version: int
    running: int


class HeartbeatReply(Struct, frozen=True):
    """The reply to a heartbeat. ``alive`` False: declared dead; stop working, register again."""

    alive: bool
    now: Instant


class Control(Struct, frozen=True):
    """What operators want of a process.

    ``version`` is the control version: it changes with every action on queues and processes.
    ``cancels`` are keys of this process's running jobs that have a cancel request. ``quiet`` asks
    the process to stop claiming.
    """

    version: int
    cancels: Sequence[int] = ()
    quiet: bool = False


class ProcessRecord(Struct, frozen=True, kw_only=True):
    """A worker process, for readers."""

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


class ProcessSignature(Struct, frozen=True):
    """What one process takes of one kind."""

    key: int
    queues: tuple[str, ...]
    signature: KindSignature


class ProcessStore(Protocol):
    """The contract for worker processes."""

    async def register(self, process: NewProcess, *, replaces: str | None = None) -> int:
        """Register a process; the answer is the owner key for its claims. ``replaces`` is the
        host_id of a process known to be dead (its parent saw it die): it is declared dead in the
        same transaction."""
        ...

    async def heartbeat(self, key: int, stats: ProcessStats) -> HeartbeatReply:
        """Renew the lease and store the report. Never revives a process that was declared dead."""
        ...

    async def deregister(self, key: int) -> None:
        """Release everything the process owns (attempts given back) and delete its registration.
        Idempotent."""
        ...

    async def remove_dead(self) -> int:
        """Delete registrations of processes that were declared dead and own no job; how many."""
        ...

    async def all(self) -> list[ProcessRecord]:
        """All living processes, by host_id."""
        ...

    async def signatures(self, kind: str) -> list[ProcessSignature]:
        """The living processes that have this kind, quiet ones too, by key, with what they
        published at their registration. Read when a process refuses a job."""
        ...

    async def control(self, key: int) -> Control:
        """What operators want of this process. Cheap enough to be called twice a second."""
        ...

    async def quiet(self, host_id: str, *, quiet: bool) -> None:
        """Ask a process to stop (or resume) claiming. NotFound if it is not alive."""
        ...

    async def share(self, *, max_slots: int) -> int:
        """Distribute the slots of all queues with settings (``core.shares.share_out``); how many
        shares changed.

        * A process gets a share of a queue if it is alive, declared the queue and is not quiet. A
          share has at most ``max_slots``.
        * What a process holds counts until it releases it, deregisters, or is declared dead and
          owns no running job.
        * A change raises the control version. Without a change nothing is written.
        """
        ...

    async def release_slots(self, key: int, in_use: Sequence[SlotsInUse]) -> int:
        """Lower what the process holds of these queues; how many slots became free.

        * A share then holds its slots or what still runs, whichever is more.
        * An entry with an older version, or of an unknown process, changes nothing.
        * What is held never rises.
        """
        ...

    async def next_expiry(self) -> Instant | None:
        """The earliest end of the lease of a process that is alive; None without any."""
        ...

    async def lead(self, name: str, key: int, *, ttl_s: float) -> bool:
        """Acquire or renew a named leadership; True when this process holds it. One that ends later
        than two ``ttl_s`` from now dates from before the clock was set back, and counts as free."""
        ...

    async def release_lead(self, name: str, key: int) -> None:
        """Release a leadership at once. No effect when another process holds it."""
        ...
