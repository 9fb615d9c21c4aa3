"""All local queues of a process: whether a job may start, and which queue comes first."""

import asyncio
from collections.abc import Iterable

from forge_jobs.core.retry import Backoff
from forge_jobs.engine.liveness.lease_state import LeaseState
from forge_jobs.engine.running.in_flight import InFlightJobs
from forge_jobs.kit.clock import Clock

from .finish_buffer import FinishBuffer
from .local_queue import LocalQueue
from .wake_signal import WakeSignal


class LocalQueues:
    """Starts waiting jobs and releases them, over all queues. Only the job loop touches it."""

    __slots__ = ("_finish_buffer", "_is_open", "_lease_state", "_mono", "_turn", "by_name")

    def __init__(
        self,
        names: Iterable[str],
        in_flight: InFlightJobs,
        finish_buffer: FinishBuffer,
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
                name, self, in_flight, finish_buffer, wake, loop, now=now, backoff=backoff
            )
            for name in names
        }

    @property
    def is_open(self) -> bool:
        """Whether jobs may be claimed and started at all."""
        return self._is_open

    def close(self) -> None:
        """Claim and start nothing any more."""
        self._is_open = False

    def may_start(self, now: float) -> bool:
        """Whether a job may start: we are open, our lease holds, and endings get written."""
        return (
            self._is_open
            and now < self._lease_state.trust_until
            and self._finish_buffer.has_room(now)
        )

    def pour(self) -> None:
        """Start whatever may start, in all queues."""
        now = self._mono()
        self._turn += 1
        for queue in self.in_turn(self._turn):
            if queue.ready:
                queue.pour(now)

    def in_turn(self, turn: int) -> list[LocalQueue]:
        """All queues, with each turn another one first: it may use up a bound they share."""
        queues = list(self.by_name.values())
        first = turn % len(queues)
        return queues[first:] + queues[:first]

    @property
    def is_fed(self) -> bool:
        """Whether there is work, and every queue that works has its next job at hand."""
        fed = False
        for queue in self.by_name.values():
            if queue.ready:
                fed = True
            elif queue.busy:
                return False
        return fed

    def hint(self) -> None:
        """The store may have jobs for every queue."""
        for queue in self.by_name.values():
            queue.hungry = True

    def hand_back_all(self) -> None:
        """Everything that has not started goes back."""
        for queue in self.by_name.values():
            queue.hand_back_all()

    def hand_back_of(self, scope: str) -> None:
        """What declares this throttle scope and has not started goes back."""
        for queue in self.by_name.values():
            queue.hand_back_of(scope)

    def clear(self) -> None:
        """Forget what waits: the store declared this process dead."""
        for queue in self.by_name.values():
            queue.ready.clear()
