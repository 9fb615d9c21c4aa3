"""Django's view of a job: ``TaskResult`` with status, errors, worker ids, and the job itself."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from forge_jobs.client.job import Job
from forge_jobs.core import payload
from forge_jobs.core.instant import Instant, to_datetime
from forge_jobs.core.job import AttemptError, JobRecord
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context

from .django_api import BaseTaskContext, BaseTaskError, BaseTaskResult, Status
from .task import TaskCalls

# The store keeps the process of the present run only.
UNKNOWN_WORKER: Final = "unknown"
_NO_CLASS: Final = "forge_jobs.JobFailed"
_CANCELLED: Final = "asyncio.CancelledError"
_STATUS: Final[dict[JobStatus, Any]] = {
    JobStatus.RUNNING: Status.RUNNING,
    JobStatus.DONE: Status.SUCCESSFUL,
    JobStatus.DEAD: Status.FAILED,
    JobStatus.CANCELLED: Status.FAILED,
}
# The line after the frames of the last traceback: "module.Class: message".
_LAST_STACK: Final = re.compile(
    r"^Traceback \(most recent call last\):\n(?:^[ \t].*\n)*^(?P<path>[\w.<>]+)(?::|$)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeTaskResult(BaseTaskResult):
    """A task result; ``forge`` is the handle of its job: steps, progress, logs, cancel."""

    forge: Job[Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeTaskContext(BaseTaskContext):
    """The context of a run; ``forge`` is the Context of Forge Jobs, with steps, log, progress."""

    forge: Context


def new_result(
    task: Any, job: Job[Any] | None, args: Sequence[Any], kwargs: Any, enqueued_at: datetime | None
) -> Any:
    """The result of a job that was just stored; without a job, of one that the commit stores."""
    return ForgeTaskResult(
        task=task,
        id="" if job is None else job.id,
        status=_STATUS.get(job.status, Status.READY) if job is not None else Status.READY,
        enqueued_at=enqueued_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=task.backend,
        errors=[],
        worker_ids=[],
        forge=job,
    )


def stored_result(task: Any, calls: TaskCalls, job: Job[Any], worker: str | None) -> Any:
    """The result of a stored job; ``worker`` is the process that runs it, where it is known."""
    record = job.record
    args, kwargs = calls.arguments.decode(record.payload)
    started = _moment(record.started_at)
    result = ForgeTaskResult(
        task=task,
        id=record.id,
        status=_STATUS.get(record.status, Status.READY),
        enqueued_at=to_datetime(record.enqueued_at),
        started_at=started,
        finished_at=_moment(record.finished_at),
        last_attempted_at=started,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=_errors(record),
        worker_ids=worker_ids(record.attempts, worker),
        forge=job,
    )
    if record.status is JobStatus.DONE and record.result is not None:
        object.__setattr__(result, "_return_value", payload.decode(record.result))
    return result


def running_result(
    task: Any, context: Context, args: list[Any], kwargs: dict[str, Any], now: datetime
) -> Any:
    """The result as the run of a job sees it."""
    info = context.job
    return ForgeTaskResult(
        task=task,
        id=info.id,
        status=Status.RUNNING,
        enqueued_at=info.enqueued_at,
        started_at=now,
        finished_at=None,
        last_attempted_at=now,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=worker_ids(info.attempts, context.host_id),
    )


def finish_result(result: Any, status: Any, now: datetime, value: Any = None) -> None:
    """Set how a run ended."""
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", now)
    object.__setattr__(result, "_return_value", value)


def worker_ids(attempts: int, last: str | None) -> list[str]:
    """One id for each attempt, since Django counts attempts by them."""
    if attempts < 1:
        return []
    return [*[UNKNOWN_WORKER] * (attempts - 1), last or UNKNOWN_WORKER]


def error_of(exception_class_path: str, traceback: str) -> Any:
    """One error of a result."""
    return BaseTaskError(exception_class_path=exception_class_path, traceback=traceback)


def _errors(record: JobRecord) -> list[Any]:
    errors = [_error(attempt) for attempt in record.errors]
    if record.status is JobStatus.CANCELLED:
        errors.append(error_of(_CANCELLED, record.last_error or "cancelled"))
    return errors


def _error(attempt: AttemptError) -> Any:
    text = attempt.traceback
    return error_of(class_path(text), attempt.message if text is None else text)


def class_path(traceback: str | None) -> str:
    """The path of the exception class in a stored traceback; JobFailed where there is none, as
    after a time-out or the death of a process."""
    found = None if traceback is None else _last(traceback)
    if found is None:
        return _NO_CLASS
    return found if "." in found else f"builtins.{found}"


def _last(traceback: str) -> str | None:
    paths = [match["path"] for match in _LAST_STACK.finditer(traceback)]
    return paths[-1] if paths else None


def _moment(instant: Instant | None) -> datetime | None:
    return None if instant is None else to_datetime(instant)
