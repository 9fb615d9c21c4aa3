"""The three executors of a process and which of them runs what."""

import asyncio
from typing import TYPE_CHECKING

from .executors import ChildRunner
from .executors.loop import LoopExecutor
from .executors.thread import ThreadExecutor
from .job_loop import JobLoop
from .registry import RunIn
from .run import Run

if TYPE_CHECKING:
    from .in_flight import InFlightJobs, InFlightParts

_LETTING_GO_S = 1.0


class ExecutorSet:
    """Made with the floor; threads and children only come when a job needs them."""

    def __init__(self, floor: "InFlightJobs", parts: "InFlightParts", job_loop: JobLoop) -> None:
        self._floor = floor
        self._parts = parts
        self.loop = LoopExecutor(floor, job_loop.loop)
        self._threads = ThreadExecutor(floor.ended, mono=parts.clock.mono, job_loop=job_loop)
        self._children: ChildRunner | None = None

    def assign(self, run: Run, *, alone: bool) -> bool:
        """Decide where a run goes; False when it must run alone but cannot."""
        if alone:
            if run.handler.child is None:
                return False
            children = self._started_children()
            run.place, run.launch = children, children.run_isolated
        elif run.handler.run_in is RunIn.THREAD:
            run.place, run.launch = self._threads, self._threads.submit
        elif run.handler.run_in is RunIn.CHILD:
            children = self._started_children()
            run.place, run.launch = children, children.submit
        return True

    def interrupt(self, run: Run) -> None:
        """End a handler wherever it runs."""
        (run.place or self.loop).interrupt(run)

    async def close(self) -> None:
        """Let go of slots, threads and children; everyone is told before anyone is waited for."""
        closing = [self.loop.close(), self._threads.close()]
        if self._children is not None:
            closing.append(self._children.close())
        await asyncio.gather(*closing, return_exceptions=True)
        kept = self._floor.around.shared
        letting_go = [asyncio.ensure_future(one.close()) for one in kept.values()]
        kept.clear()
        if letting_go:
            await asyncio.wait(letting_go, timeout=_LETTING_GO_S)

    def _started_children(self) -> ChildRunner:
        if self._children is None:
            # Imported late: most workers never start a child.
            from .executors.child import ChildExecutor

            self._children = ChildExecutor(
                self._floor.ended,
                clock=self._parts.clock,
                entropy=self._parts.entropy,
                settings=self._parts.settings,
            )
        return self._children
