"""Completes claimed jobs that were stored before any worker had published their task.

Such a job has the mark ``undeclared`` (``core.declaration``). Its handler does not run yet: the
options that the task declares are written to its row first, then the claim is released. So whatever
happens to this process, the store decides about retries, death and ``on_dead`` by what the task
declares, and a task with ``max_attempts=1`` runs once.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from forge_jobs.core.decide import Finish
from forge_jobs.core.declaration import Declaration, completed
from forge_jobs.core.job import Claim, NewJob
from forge_jobs.core.limit_key import apply_limit
from forge_jobs.core.limits import task_limit, with_declared
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.engine.running.in_flight import InFlightJobs
from forge_jobs.engine.running.job_loop import JobLoop
from forge_jobs.engine.running.registry import HandlerRegistry
from forge_jobs.engine.running.run import Run, RunState
from forge_jobs.store.jobs import DeclaredClaim, JobStore

from .finish_buffer import FinishBuffer

_LOG = logging.getLogger("forge_jobs.engine")
_RETRY_S = 15.0


class UndeclaredJobs:
    """Writes declarations and releases the claims. Everything happens on the job loop."""

    def __init__(
        self,
        in_flight: InFlightJobs,
        finish_buffer: FinishBuffer,
        handlers: HandlerRegistry,
        jobs: JobStore,
        job_loop: JobLoop,
        owner: Callable[[], int],
    ) -> None:
        self._in_flight = in_flight
        self._finish_buffer = finish_buffer
        self._handlers = handlers
        self._jobs = jobs
        self._job_loop = job_loop
        self._owner = owner
        self._tasks: set[asyncio.Task[None]] = set()

    def complete(self, runs: Sequence[Run]) -> None:
        """Take over claims whose handler must not run yet."""
        for run in runs:
            run.state = RunState.FINISHED
        task = self._job_loop.loop.create_task(self._complete(self._owner(), runs))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Write nothing more; deregistering releases the claims."""
        for task in list(self._tasks):
            task.cancel()

    async def _complete(self, owner: int, runs: Sequence[Run]) -> None:
        try:
            declared = [self._declared(run) for run in runs]
            await self._jobs.declare(
                owner,
                [DeclaredClaim(_claim(run), job) for run, job in zip(runs, declared, strict=True)],
            )
        except Exception as error:
            _LOG.warning(
                "what a task declares could not be written to jobs that were stored without it",
                extra={"count": len(runs), "error": repr(error), "retry_in": _RETRY_S},
            )
            for run in runs:
                self._finish(run, _RETRY_S)
            return
        for run, job in zip(runs, declared, strict=True):
            if job.lane is None and job.limit_key is None:
                self._release(run)
            else:
                # Promotion looks for room in the lane and under the limit; a release does not.
                self._finish(run, 0.0)

    def _declared(self, run: Run) -> NewJob:
        job, kind = run.job, run.job.kind
        declaration: Declaration | None = self._handlers.declaration(kind)
        assert declaration is not None
        made = completed(declaration.template, job)
        limit = self._handlers.limits.get(task_limit(kind))
        return made if limit is None else apply_limit(made, with_declared(None, limit, 0))

    def _release(self, run: Run) -> None:
        if self._in_flight.held.get(run.job.key) is run:
            self._finish_buffer.release(_claim(run))

    def _finish(self, run: Run, delay_s: float) -> None:
        job = run.job
        if self._in_flight.held.get(job.key) is run:
            later = Finish(
                job.key,
                job.epoch,
                Event.SNOOZE,
                JobStatus.SCHEDULED,
                job.queue,
                job.kind,
                delay_s=delay_s,
                enqueued_at=job.enqueued_at,
            )
            self._finish_buffer.add(later, self._in_flight.mono())


def _claim(run: Run) -> Claim:
    return Claim(run.job.key, run.job.epoch)
