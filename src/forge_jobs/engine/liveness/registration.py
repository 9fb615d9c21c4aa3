"""This process in the store: registered under a fresh name, alive by its lease, gone in order."""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from forge_jobs.config import EngineSettings
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy, new_ulid
from forge_jobs.store.processes import NewProcess, ProcessStats, ProcessStore

from .lease import ProcessLease
from .lease_state import LeaseState


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """What a process tells about itself; ``label`` makes the name for people."""

    queues: tuple[str, ...]
    label: Callable[[str], str]
    version: str = ""


class Registration:
    """Each life has its own host_id and owner key; a process that was declared dead starts another.

    ``news`` is called on the I/O side when trust comes or goes.
    """

    def __init__(
        self,
        processes: ProcessStore,
        card: ProcessInfo,
        *,
        settings: EngineSettings,
        clock: Clock,
        entropy: Entropy,
        stats: Callable[[], ProcessStats],
        news: Callable[[], None],
    ) -> None:
        self._processes = processes
        self._card = card
        self._lease_s = settings.lease_s
        self._clock = clock
        self._entropy = entropy
        self.standing = LeaseState()
        self.lease = ProcessLease(
            processes,
            self.standing,
            lease_s=settings.lease_s,
            beat_s=settings.heartbeat_s,
            clock=clock,
            entropy=entropy,
            stats=stats,
            news=news,
        )
        self.host_id = new_ulid(clock.now(), entropy)
        self.owner = -1

    async def join(self, *, replaces: str | None = None) -> None:
        """Register under the present host_id."""
        card = self._card
        sent_at = self._clock.mono()
        self.owner = await self._processes.register(
            NewProcess(
                host_id=self.host_id,
                label=card.label(self.host_id),
                queues=card.queues,
                pid=os.getpid(),
                hostname=socket.gethostname(),
                version=card.version,
                lease_s=self._lease_s,
            ),
            replaces=replaces,
        )
        self.lease.begin(self.owner, sent_at)

    async def join_anew(self) -> None:
        """Register again after having been declared dead, as somebody else."""
        self.host_id = new_ulid(self._clock.now(), self._entropy)
        await self.join()

    async def leave(self) -> None:
        """Go: everything still owned is released by the store."""
        await self._processes.deregister(self.owner)
