"""All local queues of a process: whether a job may start, and which queue comes first."""

import asyncio
from collections.abc import Iterable

from forge_jobs.core.retry import Backoff
from forge_jobs.engine.liveness.lease_state import LeaseState
from forge_jobs.engine.running.in_flight import InFlightJobs
from forge_jobs.engine.running.registry import HandlerRegistry
from forge_jobs.kit.clock import Clock

from .finish_buffer import FinishBuffer
from .local_queue import LocalQueue
from .wake_signal import WakeSignal


class LocalQueues:
    """Decides whether a job may start, and starts or releases ready jobs in all queues.

    Only the job loop uses it.
    """

    __slots__ = ("_finish_buffer", "_is_open", "_lease_state", "_mono", "_turn", "by_name")

    def __init__(
        self,
        names: Iterable[str],
        in_flight: InFlightJobs,
        finish_buffer: FinishBuffer,
        handlers: HandlerRegistry,
        *,
        lease_state: LeaseState,
        wake: WakeSignal,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        self._finish_buffer = finish_buffer
        self._lease_state = lease_state
        self._mono = clock.mono
        self._is_open = True
        self._turn = 0
        now = clock.mono()
        self.by_name = {
            name: LocalQueue(
                name,
                self,
                in_flight,
                finish_buffer,
                wake,
                loop,
                now=now,
                backoff=backoff,
                kinds=handlers.kinds,
            )
            for name in names
        }

    @property
    def is_open(self) -> bool:
        """Whether jobs may be claimed and started at all."""
        return self._is_open

    def close(self) -> None:
        """Claim and start nothing more."""
        self._is_open = False

    def may_start(self, now: float) -> bool:
        """Whether a job may start: not closed, inside the trust window, few enough unwritten
        finishes."""
        return (
            self._is_open
            and now < self._lease_state.trust_until
            and self._finish_buffer.has_room(now)
        )

    def start_ready(self) -> None:
        """Start what may start, in all queues."""
        now = self._mono()
        self._turn += 1
        for queue in self.rotated(self._turn):
            if queue.ready:
                queue.start_ready(now)

    def rotated(self, turn: int) -> list[LocalQueue]:
        """All queues, another one first in each turn: the first may use up a bound they share."""
        queues = list(self.by_name.values())
        first = turn % len(queues)
        return queues[first:] + queues[:first]

    @property
    def all_supplied(self) -> bool:
        """Whether jobs are ready, and every busy queue has one."""
        any_ready = False
        for queue in self.by_name.values():
            if queue.ready:
                any_ready = True
            elif queue.busy:
                return False
        return any_ready

    def expect_jobs(self) -> None:
        """The store may have jobs for any queue."""
        for queue in self.by_name.values():
            queue.expects_jobs = True

    def release_all(self) -> None:
        """Release all claims that have not started."""
        for queue in self.by_name.values():
            queue.release_all()

    def release_scope(self, scope: str) -> None:
        """Release the claims whose task declares this throttle scope and that have not started."""
        for queue in self.by_name.values():
            queue.release_scope(scope)

    def clear(self) -> None:
        """Drop all ready jobs: the store declared this process dead."""
        for queue in self.by_name.values():
            queue.ready.clear()
