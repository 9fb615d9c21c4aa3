"""The pull queue as nine functions: they take the queue, and their errors name the function."""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import ParamSpec, TypeVar

from forge_jobs.core import payload as json
from forge_jobs.core.errors import BadOption, ForgeError
from forge_jobs.core.instant import Duration

from . import work
from .job import Job
from .namespace import DEFAULT_TABLE
from .queue import JobQueue
from .requests import DEFAULT_LEASE, DEFAULT_MAX_ATTEMPTS
from .summary import summary_text

P = ParamSpec("P")
R = TypeVar("R")


def _named(function: Callable[P, R]) -> Callable[P, R]:
    """Put the function's name before the text of every ForgeError that leaves it."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ForgeError as error:
            error.args = (f"{function.__name__}: {error}",)
            raise

    return call


def _checked(queue: object) -> JobQueue:
    if not isinstance(queue, JobQueue):
        raise BadOption(f"queue is missing: pass what job_queue_create gave, not {queue!r}")
    return queue


@_named
def job_queue_create(db: str | JobQueue, table: str = DEFAULT_TABLE) -> JobQueue:
    """The queue ``table`` at an address, or in the store of another queue; created if missing.

    >>> queue = pull.job_queue_create("memory://")
    """
    if isinstance(db, JobQueue):
        return db.table(table)
    if not isinstance(db, str) or not db:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadOption("db is missing: pass an address such as sqlite:///jobs.db")
    return JobQueue.open(db, table)


@_named
def job_enqueue(
    queue: JobQueue,
    type: str,
    payload: object = None,
    *,
    priority: int = 0,
    scheduled_at: datetime | None = None,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    dedupe_key: str | None = None,
) -> str:
    """Store a job and return its id. A ``payload`` of type str or bytes is read as JSON text.

    >>> job_id = pull.job_enqueue(queue, "resize", {"path": "a.png"})
    """
    body = json.decode_text(payload) if isinstance(payload, str | bytes) else payload
    return _checked(queue).enqueue(
        type,
        body,
        priority=priority,
        scheduled_at=scheduled_at,
        max_attempts=max_attempts,
        dedupe_key=dedupe_key,
    )


@_named
def job_dequeue(
    queue: JobQueue, types: Sequence[str] | None = None, *, lease: Duration = DEFAULT_LEASE
) -> Job | None:
    """Claim the first job that is due; None when there is none.

    >>> pull.job_dequeue(queue, ["resize"]) is None  # nothing is due
    True
    """
    return _checked(queue).dequeue(types, lease=lease)


@_named
def job_complete(queue: JobQueue, job: Job | str, result: object = None) -> None:
    """Finish the job as completed.

    >>> job_id = pull.job_enqueue(queue, "resize", {"path": "a.png"})
    >>> job = pull.job_dequeue(queue, ["resize"])
    >>> pull.job_complete(queue, job, {"ok": True})
    """
    _checked(queue).complete(job, result)


@_named
def job_fail(queue: JobQueue, job: Job | str, message: str | BaseException = "") -> None:
    """Finish this attempt as failed.

    >>> job_id = pull.job_enqueue(queue, "resize", {"path": "a.png"})
    >>> pull.job_fail(queue, pull.job_dequeue(queue, ["resize"]), "no such file")
    """
    _checked(queue).fail(job, message)


@_named
def job_status_summary(counts: Mapping[str, int]) -> str:
    """Counts by status as one line; takes what ``queue.counts()`` returns.

    >>> pull.job_status_summary({"pending": 2, "completed": 5})
    'pending 2, running 0, failed 0, completed 5, dead 0 (total 7)'
    """
    return summary_text(counts)


@_named
def job_worker(
    stop: threading.Event | None,
    queue: JobQueue,
    handler: work.Handler,
    *,
    types: Sequence[str] | None = None,
    poll: Duration = work.DEFAULT_POLL,
    lease: Duration = DEFAULT_LEASE,
    timeout: Duration | None = None,
) -> int:
    """Handle jobs until ``stop`` is set; returns how many.

    >>> job_id = pull.job_enqueue(queue, "resize", {"path": "a.png"})
    >>> stop = threading.Event()
    >>> def resize(job: pull.Job) -> None:
    ...     print(job.payload["path"])
    ...     stop.set()
    >>> count = pull.job_worker(stop, queue, resize)
    a.png
    """
    return _checked(queue).work(
        handler, types=types, poll=poll, stop=stop, lease=lease, timeout=timeout
    )


@_named
def job_worker_pool(
    stop: threading.Event | None,
    queue: JobQueue,
    workers: int,
    handler: work.Handler,
    *,
    types: Sequence[str] | None = None,
    poll: Duration = work.DEFAULT_POLL,
    lease: Duration = DEFAULT_LEASE,
    timeout: Duration | None = None,
) -> int:
    """``job_worker`` on ``workers`` threads; returns when all have stopped.

    >>> job_id = pull.job_enqueue(queue, "resize", {"path": "a.png"})
    >>> stop = threading.Event()
    >>> def resize(job: pull.Job) -> None:
    ...     print(job.payload["path"])
    ...     stop.set()
    >>> count = pull.job_worker_pool(stop, queue, 2, resize)
    a.png
    """
    return _checked(queue).work_pool(
        workers, handler, types=types, poll=poll, stop=stop, lease=lease, timeout=timeout
    )


@_named
def job_cleanup(queue: JobQueue, older_than: Duration, *, keep_dead: bool = False) -> int:
    """Delete jobs that ended longer than ``older_than`` ago; returns how many.

    >>> pull.job_cleanup(queue, "7d")
    0
    """
    return _checked(queue).cleanup(older_than, keep_dead=keep_dead)
