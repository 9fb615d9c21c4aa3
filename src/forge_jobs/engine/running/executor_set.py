"""The three executors of a process, and which of them runs which job."""

import asyncio
from typing import TYPE_CHECKING

from forge_jobs.config import EngineSettings
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy

from .executors.loop import LoopExecutor
from .executors.thread import ThreadExecutor
from .job_loop import JobLoop
from .registry import RunIn
from .run import Run

if TYPE_CHECKING:
    from .executors.child import ChildExecutor
    from .in_flight import InFlightJobs

_CLOSE_SHARED_S = 1.0


class ExecutorSet:
    """Made with the in-flight jobs; threads and children are started when a job needs them."""

    def __init__(
        self,
        in_flight: "InFlightJobs",
        *,
        settings: EngineSettings,
        clock: Clock,
        entropy: Entropy,
        job_loop: JobLoop,
    ) -> None:
        self._in_flight = in_flight
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self.loop = LoopExecutor(in_flight, job_loop.loop)
        self._threads = ThreadExecutor(
            in_flight.finish_and_free_slot, mono=clock.mono, job_loop=job_loop
        )
        self._children: ChildExecutor | None = None

    def assign(self, run: Run, *, alone: bool) -> bool:
        """Choose the executor of a run; False when it must run alone but cannot."""
        if alone:
            if run.handler.child is None:
                return False
            children = self._started_children()
            run.executor, run.launch = children, children.run_isolated
        elif run.handler.run_in is RunIn.THREAD:
            run.executor, run.launch = self._threads, self._threads.submit
        elif run.handler.run_in is RunIn.CHILD:
            children = self._started_children()
            run.executor, run.launch = children, children.submit
        return True

    def interrupt(self, run: Run) -> None:
        """End a handler, wherever it runs."""
        (run.executor or self.loop).interrupt(run)

    async def close(self) -> None:
        """Close all executors at once, then what handlers share (``Context.shared``)."""
        closing = [self.loop.close(), self._threads.close()]
        if self._children is not None:
            closing.append(self._children.close())
        await asyncio.gather(*closing, return_exceptions=True)
        shared = self._in_flight.environment.shared
        closing_shared = [asyncio.ensure_future(one.close()) for one in shared.values()]
        shared.clear()
        if closing_shared:
            await asyncio.wait(closing_shared, timeout=_CLOSE_SHARED_S)

    def _started_children(self) -> "ChildExecutor":
        if self._children is None:
            # Imported late: most workers never start a child.
            from .executors.child import ChildExecutor

            self._children = ChildExecutor(
                self._in_flight.finish_and_free_slot,
                clock=self._clock,
                entropy=self._entropy,
                settings=self._settings,
            )
        return self._children
