"""Runs handlers in warm child processes: ``cpu=True`` tasks, and suspects that run alone.

Children are started when a job needs one and none is free, so that there are never more than jobs
running at once. A child runs one job at a time, is dismissed after ``child_idle_s`` without work or
``max_child_jobs`` jobs, and dies with its worker. Interrupting a job means killing its child.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from forge_jobs.config import EngineSettings
from forge_jobs.core.outcome import Failed, Stopped
from forge_jobs.engine.running.run import OnRunFinish, Run, RunOutcome
from forge_jobs.kit.children.pool import ChildPool
from forge_jobs.kit.children.warm_child import ChildUnavailable
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy

from .child_worker import ChildWorker

_LOG = logging.getLogger("forge_jobs.child")
_MAX_CHILDREN_TRIED: Final = 3


@dataclass(slots=True)
class _ChildRun:
    """The task of a run, and its child once there is one."""

    task: "asyncio.Task[None]"
    child: ChildWorker | None = None


class ChildExecutor:
    """Runs handlers in child processes. Built on the job loop when the first job needs a child."""

    def __init__(
        self, on_finish: OnRunFinish, *, clock: Clock, entropy: Entropy, settings: EngineSettings
    ) -> None:
        self._on_finish = on_finish
        self._loop = asyncio.get_running_loop()
        self._runs: dict[Run, _ChildRun] = {}
        self._pool = ChildPool(
            ChildWorker,
            ChildWorker.start_program,
            size=None,
            is_worn_out=lambda child: child.jobs >= settings.max_child_jobs,
            idle_s=settings.child_idle_s,
            clock=clock,
            entropy=entropy,
        )
        self._closed = False

    def submit(self, run: Run) -> None:
        """Run this handler in a free child, or in a new one."""
        self._start(run, isolated=False)

    def run_isolated(self, run: Run) -> None:
        """Like ``submit``, but alone in a fresh child that runs nothing else before or after,
        whatever ``run.handler.run_in`` says. If the child dies by itself the outcome is
        ``Crashed``; a child that we killed (``run.stop`` is set) did not crash."""
        self._start(run, isolated=True)

    def interrupt(self, run: Run) -> None:
        """Kill the child of a run that was told to end."""
        child_run = self._runs.get(run)
        if child_run is not None and child_run.child is not None:
            self._pool.spawn(child_run.child.halt(run))

    async def close(self) -> None:
        """Kill all children; nothing is reported any more."""
        self._closed = True
        tasks = [child_run.task for child_run in self._runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.close()

    def _start(self, run: Run, *, isolated: bool) -> None:
        task = self._loop.create_task(self._work(run, isolated=isolated))
        self._runs[run] = _ChildRun(task)

    async def _work(self, run: Run, *, isolated: bool) -> None:
        try:
            run_outcome = await self._run_outcome(run, isolated=isolated)
        except Exception as error:
            _LOG.exception("a child executor failed")
            run_outcome = RunOutcome(
                Failed(f"the child executor failed: {type(error).__name__}: {error}")
            )
        self._runs.pop(run, None)
        if not self._closed:
            self._on_finish(run, run_outcome)

    async def _run_outcome(self, run: Run, *, isolated: bool) -> RunOutcome:
        if run.handler.child is None:
            return RunOutcome(Failed(f"kind {run.job.kind!r} cannot run in a process of its own"))
        last_error = ""
        for _ in range(_MAX_CHILDREN_TRIED):
            try:
                child = await self._pool.acquire(fresh=isolated)
            except ChildUnavailable as error:
                last_error = str(error)
                continue
            try:
                if run.stop_reason is not None:
                    return RunOutcome(Stopped(run.stop_reason))
                self._runs[run].child = child
                return await child.work(run)
            except ChildUnavailable as error:
                last_error = str(error)
            finally:
                self._pool.release(child, keep=not isolated)
        return RunOutcome(Failed(last_error))
