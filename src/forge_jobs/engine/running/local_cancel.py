"""Cancels a job that runs in this process: at once here, and recorded in the store."""

import asyncio

from forge_jobs.core.errors import StoreError
from forge_jobs.core.ids import row_key
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.kit.clock import Clock
from forge_jobs.store.store import Store

from .in_flight import InFlightJobs
from .job_loop import JobLoop
from .run import Run, RunState

REASON = "cancelled in its own process"
_DELAYS_S = (0.1, 0.3, 1.0)


class LocalCancels:
    """Cancels and records: without the record the store would retry the run as a failure."""

    def __init__(
        self, in_flight: InFlightJobs, store: Store, job_loop: JobLoop, clock: Clock
    ) -> None:
        self._in_flight = in_flight
        self._store = store
        self._job_loop = job_loop
        self._clock = clock
        self._tasks: dict[asyncio.Task[None], None] = {}

    def request(self, public_id: str) -> bool:
        """Cancel the job if this process holds it; whether it does. Any thread may call it."""
        parsed = row_key(public_id, self._store.tag)
        if parsed is None:
            return False
        key, millisecond = parsed
        run = self._in_flight.held.get(key)
        if run is None or run.job.enqueued_at // 1000 != millisecond:
            return False
        if run.state not in (RunState.READY, RunState.RUNNING):
            return False
        if self._job_loop.is_here:
            self._cancel(run)
        else:
            self._job_loop.post(self._cancel, run)
        return True

    def close(self) -> None:
        """Stop writing requests to the store."""
        for task in list(self._tasks):
            task.cancel()

    def _cancel(self, run: Run) -> None:
        if run.recording_cancel or run.state not in (RunState.READY, RunState.RUNNING):
            return
        self._in_flight.cancel_locally(run)
        task = self._job_loop.loop.create_task(self._record(run))
        self._tasks[task] = None
        task.add_done_callback(self._discard)

    async def _record(self, run: Run) -> None:
        try:
            for delay_s in (*_DELAYS_S, None):
                try:
                    await self._store.jobs.act(
                        BulkAction.CANCEL, Selection(ids=(run.id,)), reason=REASON, limit=1
                    )
                    return
                except StoreError:
                    if delay_s is None:
                        return
                await self._clock.sleep(delay_s)
        finally:
            self._in_flight.cancel_recorded(run)

    def _discard(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
