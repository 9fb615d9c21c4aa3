"""Reconciles the claims this process holds with the rows it owns in the store.

Runs after a reply was lost and once per lease.
"""

from forge_jobs.engine.running.in_flight import InFlightJobs
from forge_jobs.engine.running.run import NEVER, RunState, StopReason
from forge_jobs.store.jobs import JobStore

from .finish_buffer import FinishBuffer


class Reconciler:
    """Knows when to reconcile, and does it."""

    def __init__(
        self,
        in_flight: InFlightJobs,
        finish_buffer: FinishBuffer,
        jobs: JobStore,
        *,
        lease_s: float,
        now: float,
    ) -> None:
        self._in_flight = in_flight
        self._finish_buffer = finish_buffer
        self._jobs = jobs
        self._lease_s = lease_s
        self.due_at = now + lease_s

    def request(self, now: float) -> None:
        """A call may have had an unreported effect: reconcile before the next exchange."""
        self.due_at = now

    def postpone(self, now: float) -> None:
        """Reconcile again in one lease."""
        self.due_at = now + self._lease_s

    def is_due(self, now: float) -> bool:
        """Whether it is time to reconcile."""
        return now >= self.due_at and self.due_at != NEVER

    async def reconcile(self, owner: int, number: int, now: float) -> None:
        """Release rows that the store counts as ours and that are not held here; interrupt handlers
        whose claim is gone. No exchange is in flight meanwhile, so neither side changes."""
        rows = await self._jobs.owned(owner)
        in_flight = self._in_flight
        if in_flight.lease_state.dead:
            return
        self.postpone(now)
        owned = {row.claim.key: row.claim.epoch for row in rows}
        stranded = 0
        for row in rows:
            run = in_flight.held.get(row.claim.key)
            if row.exchange <= number and (run is None or run.job.epoch != row.claim.epoch):
                self._finish_buffer.release(row.claim)
                stranded += 1
        if stranded:
            in_flight.run_log.stranded(stranded)
        for run in list(in_flight.held.values()):
            gone = owned.get(run.job.key) != run.job.epoch
            if gone and run.state is RunState.RUNNING and run.stop is None:
                in_flight.interrupt(run, StopReason.LOST)
