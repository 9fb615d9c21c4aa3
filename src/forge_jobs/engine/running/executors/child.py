"""Handlers in warm child processes: ``cpu=True`` tasks, and suspects that run alone.

Children are started when a job needs one and none is free, so that there are never more than jobs
running at once. A child runs one job at a time, is let go after ``child_idle_s`` without work or
``max_child_jobs`` jobs, and dies with its worker. Stopping a job means killing its child.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from forge_jobs.config import EngineSettings
from forge_jobs.core.outcome import Failed, Stopped
from forge_jobs.engine.running.run import OnRunEnd, Run, RunOutcome
from forge_jobs.kit.children.pool import ChildPool
from forge_jobs.kit.children.warm_child import ChildUnavailable
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy

from .child_worker import ChildWorker

_LOG = logging.getLogger("forge_jobs.child")
_SEATS_TRIED: Final = 3


@dataclass(slots=True)
class _ChildRun:
    """Where a run is at work: its task, and its child once there is one."""

    task: "asyncio.Task[None]"
    seat: ChildWorker | None = None


class ChildExecutor:
    """Runs handlers in child processes; see ``executors.ChildRunner``."""

    def __init__(
        self, ended: OnRunEnd, *, clock: Clock, entropy: Entropy, settings: EngineSettings
    ) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._places: dict[Run, _ChildRun] = {}
        self._pool = ChildPool(
            ChildWorker,
            ChildWorker.start_program,
            size=None,
            is_worn_out=lambda seat: seat.jobs >= settings.max_child_jobs,
            idle_s=settings.child_idle_s,
            clock=clock,
            entropy=entropy,
        )
        self._closed = False

    def submit(self, run: Run) -> None:
        """Run this handler in a free child, or in a new one."""
        self._place(run, isolated=False)

    def run_isolated(self, run: Run) -> None:
        """Run this handler alone in a child of its own."""
        self._place(run, isolated=True)

    def interrupt(self, run: Run) -> None:
        """Kill the child of a run that was told to end."""
        place = self._places.get(run)
        if place is not None and place.seat is not None:
            self._pool.spawn(place.seat.halt(run))

    async def close(self) -> None:
        """Kill all children; nothing more is reported."""
        self._closed = True
        tasks = [place.task for place in self._places.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.close()

    def _place(self, run: Run, *, isolated: bool) -> None:
        task = self._loop.create_task(self._work(run, isolated=isolated))
        self._places[run] = _ChildRun(task)

    async def _work(self, run: Run, *, isolated: bool) -> None:
        try:
            ending = await self._ending(run, isolated=isolated)
        except Exception as error:
            _LOG.exception("a child executor failed")
            ending = RunOutcome(
                Failed(f"the child executor failed: {type(error).__name__}: {error}")
            )
        self._places.pop(run, None)
        if not self._closed:
            self._ended(run, ending)

    async def _ending(self, run: Run, *, isolated: bool) -> RunOutcome:
        if run.handler.child is None:
            return RunOutcome(Failed(f"kind {run.job.kind!r} cannot run in a process of its own"))
        why = ""
        for _ in range(_SEATS_TRIED):
            try:
                seat = await self._pool.acquire(fresh=isolated)
            except ChildUnavailable as died:
                why = str(died)
                continue
            try:
                if run.stop_reason is not None:
                    return RunOutcome(Stopped(run.stop_reason))
                self._places[run].seat = seat
                return await seat.work(run)
            except ChildUnavailable as died:
                why = str(died)
            finally:
                self._pool.release(seat, keep=not isolated)
        return RunOutcome(Failed(why))
