"""Claims whose answer was lost, and claims that were taken away: compare with the store's rows."""

from forge_jobs.engine.running.in_flight import InFlightJobs
from forge_jobs.engine.running.run import NEVER, RunState, StopReason
from forge_jobs.store.jobs import JobStore

from .finish_buffer import FinishBuffer


class Reconciler:
    """Once per lease, and after every answer that may have been lost."""

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

    def rouse(self, now: float) -> None:
        """An exchange may have happened without our knowing: look before the next one."""
        self.due_at = now

    def calm(self, now: float) -> None:
        """Nothing to compare for a lease."""
        self.due_at = now + self._lease_s

    def is_due(self, now: float) -> bool:
        """Whether it is time to compare."""
        return now >= self.due_at and self.due_at != NEVER

    async def settle(self, owner: int, number: int, now: float) -> None:
        """Hand back what the store counts as ours and nobody here holds; tell handlers whose claim
        is gone. No exchange is under way meanwhile, so both sides stand still."""
        rows = await self._jobs.owned(owner)
        in_flight = self._in_flight
        if in_flight.lease_state.dead:
            return
        self.calm(now)
        ours = {row.claim.key: row.claim.epoch for row in rows}
        stranded = 0
        for row in rows:
            run = in_flight.held.get(row.claim.key)
            if row.exchange <= number and (run is None or run.job.epoch != row.claim.epoch):
                self._finish_buffer.release(row.claim)
                stranded += 1
        if stranded:
            in_flight.run_log.stranded(stranded)
        for run in list(in_flight.held.values()):
            gone = ours.get(run.job.key) != run.job.epoch
            if gone and run.state is RunState.RUNNING and run.stop is None:
                in_flight.interrupt(run, StopReason.LOST)
