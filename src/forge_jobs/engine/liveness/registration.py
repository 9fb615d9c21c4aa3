"""Registers this process in the store under a fresh host_id, and deregisters it."""

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from forge_jobs.config import EngineSettings
from forge_jobs.core.kind_signature import KindSignature
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy, new_ulid
from forge_jobs.store.processes import NewProcess, ProcessStats, ProcessStore

from .lease import ProcessLease
from .lease_state import LeaseState


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """What the registration of a process says; ``label`` makes the name for people."""

    queues: tuple[str, ...]
    label: Callable[[str], str]
    version: str = ""


class Registration:
    """The registration of this process and its lease.

    A process that was declared dead registers again, under another host_id and owner key.
    ``on_change`` is called on the I/O side when trust is regained or the process was declared
    dead.
    """

    def __init__(
        self,
        processes: ProcessStore,
        info: ProcessInfo,
        *,
        settings: EngineSettings,
        clock: Clock,
        entropy: Entropy,
        stats: Callable[[], ProcessStats],
        signatures: Callable[[], Mapping[str, KindSignature]],
        on_change: Callable[[], None],
    ) -> None:
        self._processes = processes
        self._info = info
        self._signatures = signatures
        self._lease_s = settings.lease_s
        self._clock = clock
        self._entropy = entropy
        self.lease_state = LeaseState()
        self.lease = ProcessLease(
            processes,
            self.lease_state,
            lease_s=settings.lease_s,
            interval_s=settings.heartbeat_s,
            clock=clock,
            entropy=entropy,
            stats=stats,
            on_change=on_change,
        )
        self.host_id = new_ulid(clock.now(), entropy)
        self.owner = -1

    async def register(self, *, replaces: str | None = None) -> None:
        """Register under the current host_id."""
        info = self._info
        sent_at = self._clock.mono()
        self.owner = await self._processes.register(
            NewProcess(
                host_id=self.host_id,
                label=info.label(self.host_id),
                queues=info.queues,
                pid=os.getpid(),
                hostname=socket.gethostname(),
                version=info.version,
                lease_s=self._lease_s,
                signatures=self._signatures(),
            ),
            replaces=replaces,
        )
        self.lease.start(self.owner, sent_at)

    async def register_again(self) -> None:
        """Register under a new host_id, after the process was declared dead."""
        self.host_id = new_ulid(self._clock.now(), self._entropy)
        await self.register()

    async def deregister(self) -> None:
        """Remove the registration; the store releases everything the process still owns."""
        await self._processes.deregister(self.owner)
