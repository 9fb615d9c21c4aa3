"""The log lines about jobs: a warning for each retry, an error for each dead job."""

import logging

from forge_jobs.core.decide import Finish
from forge_jobs.core.ids import job_id
from forge_jobs.core.status import Event, JobStatus

from .run import Run

_LOG = logging.getLogger("forge_jobs.engine")


class RunLog:
    """Logs what happened to jobs, with their fields; counts refused finishes."""

    def __init__(self, tag: int) -> None:
        self._tag = tag
        self.refused = 0

    def finished(self, run: Run, finish: Finish) -> None:
        """A finish other than done."""
        if finish.status is JobStatus.DEAD:
            _LOG.error("job is dead", extra=self._fields(run, finish))
        elif finish.event in (Event.FAIL, Event.CRASH):
            _LOG.warning("job failed and will be retried", extra=self._fields(run, finish))
        elif finish.event is Event.MISSING:
            self._refused(run, finish)
        elif finish.event is Event.THROTTLE:
            _LOG.info("job throttled", extra=self._fields(run, finish))

    def _refused(self, run: Run, finish: Finish) -> None:
        # It is offered again every few seconds: once per job is enough.
        level = logging.WARNING if run.job.missing_since is None else logging.DEBUG
        if run.handler.kind == run.job.kind:
            text = "the arguments do not fit this worker's version of the task"
        else:
            text = "no handler for this kind here"
        _LOG.log(level, text, extra=self._fields(run, finish))

    def stale(self, finish: Finish) -> None:
        """A finish was refused by the fence: another process owns the job now."""
        self.refused += 1
        _LOG.warning(
            "a late finish was refused: another process has claimed the job",
            extra={"kind": finish.kind, "queue": finish.queue, "error": finish.error},
        )

    def stranded(self, count: int) -> None:
        """Claims whose reply was lost are released."""
        _LOG.warning("releasing claims whose reply was lost", extra={"count": count})

    def exchange_failed(self, error: BaseException, retry_in: float) -> None:
        """An exchange failed and will be repeated."""
        _LOG.warning(
            "an exchange with the store failed",
            extra={"error": f"{type(error).__name__}: {error}", "retry_in": round(retry_in, 3)},
        )

    def rejected(self, finish: Finish, error: BaseException) -> None:
        """The store refuses this finish as invalid."""
        _LOG.error(
            "the store refuses this finish; the job is recorded as dead",
            extra={"kind": finish.kind, "queue": finish.queue, "error": str(error)},
        )

    def _fields(self, run: Run, finish: Finish) -> dict[str, object]:
        job = run.job
        return {
            "kind": job.kind,
            "queue": job.queue,
            "job_id": job_id(job.key, job.enqueued_at, self._tag),
            "attempts": job.attempts,
            "retry_in": finish.delay_s if finish.status is not JobStatus.DEAD else None,
            "error": finish.error,
        }
