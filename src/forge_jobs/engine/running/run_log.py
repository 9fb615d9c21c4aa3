"""The log lines about jobs: a warning for each retry, an error for each dead job.

The facts stand in the message itself, so that a handler without our formatter shows them too. The
same facts are fields of the record (``extra``).
"""

import logging
from typing import Final

from forge_jobs import config
from forge_jobs.core.decide import Finish
from forge_jobs.core.events import name_and_key
from forge_jobs.core.failing_line import failing_line
from forge_jobs.core.ids import job_id
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.job import ClaimedJob
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.kit import redact
from forge_jobs.kit.log import IN_MESSAGE, log_with_traceback

from .run import Run, StopReason

_LOG = logging.getLogger("forge_jobs.engine")
_IN_MESSAGE: Final = frozenset({"kind", "queue", "job_id", "attempts", "attempt", "error"})


class RunLog:
    """Logs what happened to jobs, with their fields; counts refused finishes and those that are not
    done: ``failed`` will be retried, ``put_off`` were snoozed, throttled or had no handler.

    ``job_level`` is the level of the lines about the start and end of each job.
    """

    def __init__(self, tag: int, *, job_level: int = logging.DEBUG) -> None:
        self._tag = tag
        self._web_url = config.web_url()
        self.job_level = job_level
        self.refused = 0
        self.failed = self.dead = self.put_off = 0

    @property
    def logs_every_job(self) -> bool:
        """Whether the start and end of each job are logged. Asked once, when a worker starts."""
        return _LOG.isEnabledFor(self.job_level)

    def started(self, run: Run) -> None:
        """The handler starts."""
        self._log_run("job started", run)

    def done(self, run: Run, ran_s: float) -> None:
        """The handler succeeded."""
        self._log_run(f"job done in {ran_s:.3f} s", run, ran_s=round(ran_s, 6))

    def finished(self, run: Run, finish: Finish) -> None:
        """A finish other than done."""
        if finish.status is JobStatus.DEAD:
            self.dead += 1
        elif finish.event in (Event.FAIL, Event.CRASH):
            self.failed += 1
        else:
            self.put_off += 1
        if run.stop is StopReason.CANCEL and finish.event is Event.FAIL:
            self._log(logging.INFO, "job cancelled", run.job, finish, says_error=False)
        elif finish.status is JobStatus.DEAD:
            self._log(logging.ERROR, "job is dead", run.job, finish)
        elif finish.event in (Event.FAIL, Event.CRASH):
            text = f"job failed and will be retried in {_seconds(finish.delay_s or 0)} s"
            self._log(logging.WARNING, text, run.job, finish)
        elif finish.event is Event.MISSING:
            self._refused(run, finish)
        elif finish.event is Event.THROTTLE:
            self._log(logging.INFO, "job throttled", run.job, finish)
        elif finish.event is Event.SNOOZE and finish.steps is not None and finish.steps.run_at:
            text = f"job sleeps until {to_datetime(finish.steps.run_at).isoformat()}"
            self._log(self.job_level, text, run.job, finish)
        elif finish.event is Event.SNOOZE:
            self._log(self.job_level, "job snoozed", run.job, finish)
        elif finish.event is Event.SUSPEND:
            self._log(self.job_level, _suspended_text(finish), run.job, finish)
        elif finish.event is Event.RESTART:
            self._log(self.job_level, "job restarted with a new history", run.job, finish)

    def resumed(self, run: Run, steps: int, *, more: bool) -> None:
        """A handler uses the steps that earlier runs stored."""
        count = f"{steps} or more" if more else f"{steps}"
        self._log_run(f"job goes on after {count} stored steps", run, steps=steps)

    def _refused(self, run: Run, finish: Finish) -> None:
        # It is offered again every few seconds: once per job is enough.
        level = logging.WARNING if run.job.missing_since is None else logging.DEBUG
        if run.handler.kind == run.job.kind:
            text = "the arguments do not fit this worker's version of the task"
        else:
            text = "no handler for this kind here"
        self._log(level, text, run.job, finish)

    def stale(self, finish: Finish) -> None:
        """A finish was refused by the fence: another process owns the job now."""
        self.refused += 1
        self._log_finish(
            "a late finish was refused, another process has claimed the job", finish, finish.error
        )

    def stranded(self, count: int) -> None:
        """Claims whose reply was lost are released."""
        _LOG.warning("releasing %d claims whose reply was lost", count, extra={"count": count})

    def exchange_failed(self, error: BaseException, retry_in: float) -> None:
        """An exchange failed and will be repeated."""
        text = redact.prose(f"{type(error).__name__}: {error}")
        _LOG.warning(
            "an exchange with the store failed and is repeated in %.3g s: %s",
            retry_in,
            text,
            extra={
                "error": text,
                "retry_in": round(retry_in, 3),
                IN_MESSAGE: frozenset({"error", "retry_in"}),
            },
        )

    def rejected(self, finish: Finish, error: BaseException) -> None:
        """The store refuses this finish as invalid."""
        self._log_finish(
            "the store refuses this finish, the job is recorded as dead",
            finish,
            str(error),
            level=logging.ERROR,
        )

    def _log(
        self, level: int, text: str, job: ClaimedJob, finish: Finish, *, says_error: bool = True
    ) -> None:
        if not _LOG.isEnabledFor(level):
            return
        public_id = job_id(job.key, job.enqueued_at, self._tag)
        error = None if finish.error is None or not says_error else redact.prose(finish.error)
        traceback = finish.traceback if says_error else None
        fields: dict[str, object] = {
            "kind": job.kind,
            "queue": job.queue,
            "job_id": public_id,
            "attempts": job.attempts,
            "attempt": job.attempts,
            "retry_in": finish.delay_s if finish.status is not JobStatus.DEAD else None,
            "error": error,
            "job_url": self._job_url(public_id),
            IN_MESSAGE: _IN_MESSAGE | {"retry_in"},
        }
        message = job_message(
            text,
            kind=job.kind,
            id=public_id,
            queue=job.queue,
            attempt=f"{job.attempts}/{job.max_attempts}",
            error=error,
            traceback=traceback,
        )
        log_with_traceback(_LOG, level, message, fields, traceback)

    def _log_run(self, text: str, run: Run, **more: object) -> None:
        if _LOG.isEnabledFor(self.job_level):
            job, fields = run.job, {**run.log_fields(), **more}
            link = {"job_url": self._job_url(run.id)}
            message = job_message(
                text, kind=job.kind, id=run.id, queue=job.queue,
                attempt=f"{job.attempts}/{job.max_attempts}",
            )  # fmt: skip
            extra = {**fields, **link, IN_MESSAGE: frozenset(fields)}
            _LOG.log(self.job_level, "%s", message, extra=extra)

    def _log_finish(
        self, text: str, finish: Finish, error: str | None, *, level: int = logging.WARNING
    ) -> None:
        shown = None if error is None else redact.prose(error)
        public_id = job_id(finish.key, finish.enqueued_at, self._tag)
        fields = {"kind": finish.kind, "queue": finish.queue, "job_id": public_id, "error": shown}
        message = job_message(text, kind=finish.kind, id=public_id, queue=finish.queue, error=shown)
        link = {"job_url": self._job_url(public_id)}
        _LOG.log(level, "%s", message, extra={**fields, **link, IN_MESSAGE: _IN_MESSAGE})

    def _job_url(self, public_id: str) -> str | None:
        """Where Mission Control shows the job; None if nobody said where it is."""
        return None if self._web_url is None else f"{self._web_url}/jobs/{public_id}"


def _suspended_text(finish: Finish) -> str:
    steps = finish.steps
    if steps is None or steps.wait is None:
        return "job suspended"
    named = [name_and_key(one.topic) for one in steps.wait.topics]
    names = ", ".join(dict.fromkeys(name for name, _ in named))
    text = f"job suspended until an event {names} is sent"
    if steps.run_at is None:
        return text
    return f"{text}, at most until {to_datetime(steps.run_at).isoformat()}"


def job_message(
    text: str,
    *,
    kind: str,
    id: str,
    queue: str,
    attempt: str | None = None,
    error: str | None = None,
    traceback: str | None = None,
) -> str:
    """``job is dead: send 01ABC queue=mail attempt 5/5: KeyError: 'missing' (app.py:12)``."""
    message = f"{text}: {kind} {id} queue={queue}"
    if attempt is not None:
        message += f" attempt {attempt}"
    if error is not None:
        message += f": {error}"
    line = failing_line(traceback)
    return message if line is None else f"{message} ({line})"


def _seconds(delay_s: float) -> str:
    """A delay for people: three digits below 100 s, whole seconds above."""
    return f"{delay_s:.3g}" if delay_s < 100 else f"{delay_s:.0f}"
