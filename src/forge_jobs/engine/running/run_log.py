"""The engine's own log lines: a warning for each retry, an error for each death."""

import logging

from forge_jobs.core.decide import Finish
from forge_jobs.core.ids import job_id
from forge_jobs.core.status import Event, JobStatus

from .run import Run

_LOG = logging.getLogger("forge_jobs.engine")


class RunLog:
    """Says what happened to jobs, with their fields; counts what nobody asked to hear about."""

    def __init__(self, tag: int) -> None:
        self._tag = tag
        self.refused = 0

    def ended(self, run: Run, finish: Finish) -> None:
        """An ending other than success."""
        if finish.status is JobStatus.DEAD:
            _LOG.error("job is dead", extra=self._fields(run, finish))
        elif finish.event in (Event.FAIL, Event.CRASH):
            _LOG.warning("job failed and will be retried", extra=self._fields(run, finish))
        elif finish.event is Event.MISSING:
            _LOG.warning("no handler for this kind here", extra=self._fields(run, finish))
        elif finish.event is Event.THROTTLE:
            _LOG.info("job throttled", extra=self._fields(run, finish))

    def stale(self, finish: Finish) -> None:
        """An ending that came too late: the job belongs to somebody else by now."""
        self.refused += 1
        _LOG.warning(
            "a late ending was refused: the job was taken over meanwhile",
            extra={"kind": finish.kind, "queue": finish.queue, "error": finish.error},
        )

    def stranded(self, count: int) -> None:
        """Claims whose answer was lost on the way."""
        _LOG.warning("handing back claims whose answer was lost", extra={"count": count})

    def store_trouble(self, error: BaseException, retry_in: float) -> None:
        """The store did not take an exchange."""
        _LOG.warning(
            "the store did not answer an exchange",
            extra={"error": f"{type(error).__name__}: {error}", "retry_in": round(retry_in, 3)},
        )

    def rejected(self, finish: Finish, error: BaseException) -> None:
        """The store can never take this ending as it is."""
        _LOG.error(
            "the store refuses this ending; the job is recorded as dead",
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
