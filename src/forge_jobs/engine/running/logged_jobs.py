"""In-flight jobs of a worker that logs the start and end of each job.

A class of its own, chosen when a worker starts: a worker that does not log every job pays nothing.
"""

from forge_jobs.core.outcome import Done

from .in_flight import InFlightJobs
from .run import Run, RunOutcome, StopReason


class LoggedInFlightJobs(InFlightJobs):
    """``InFlightJobs`` with one line per start and one per success; the run log writes the others
    anyway."""

    def begin(self, run: Run, now: float) -> None:
        super().begin(run, now)
        self.run_log.started(run)

    def done(self, run: Run, now: float) -> None:
        super().done(run, now)
        self.run_log.done(run, now - run.started_at)

    def finish(self, run: Run, run_outcome: RunOutcome, at: float) -> None:
        super().finish(run, run_outcome, at)
        if isinstance(run_outcome.outcome, Done) and run.stop is not StopReason.TIMEOUT:
            self.run_log.done(run, max(0.0, at - run.started_at))
