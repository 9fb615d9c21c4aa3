"""The handle of a stored job: its id, its state, its result."""

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from forge_jobs.core import payload
from forge_jobs.core.errors import Invalid, JobFailed, ResultTimeout
from forge_jobs.core.instant import Duration, Instant, seconds, to_datetime
from forge_jobs.core.job import AttemptError, JobRecord, LogLine
from forge_jobs.core.selection import Acted, BulkAction, Selection
from forge_jobs.core.status import JobStatus, is_terminal
from forge_jobs.kit.thread_result import ThreadResult
from forge_jobs.store.jobs import Peek

from .job_actions import act_on, due_fields, not_found
from .job_history import JobHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from forge_jobs.store.store import Store

    from .job_client import JobClient

R = TypeVar("R")
_REASON = "cancelled by the application"


class Job(JobHistory, Generic[R]):
    """The handle of a stored job, as ``enqueue`` returns it.

    ``id``, ``duplicate`` and ``status`` are set at once. ``duplicate``: the dedupe key was taken,
    and this is the existing job. Everything else is what the last ``refresh`` read: attributes such
    as ``attempts`` or ``error`` raise Invalid before the first one.

    ``result`` waits for the end of the job and returns what its function returned. Methods whose
    names begin with ``a`` are for coroutines.

    >>> job = send.using(dedupe_key="welcome:42").enqueue("a@b.c")
    >>> again = send.using(dedupe_key="welcome:42").enqueue("a@b.c")
    >>> again.duplicate, again.id == job.id
    (True, True)
    >>> report = forge.drain().run()
    >>> job.result(timeout=10)
    'hi to a@b.c'
    >>> job.refresh().attempts
    1
    """

    __slots__ = ("_client", "_read", "_record", "_status", "duplicate", "id")

    def __init__(
        self,
        client: "JobClient",
        job_id: str,
        read: "Callable[[bytes], R] | None" = None,
        duplicate: bool = False,
        status: JobStatus | None = None,
    ) -> None:
        self.id = job_id
        self.duplicate = duplicate
        self._client = client
        self._read = read
        self._status = status
        self._record: JobRecord | None = None

    def __repr__(self) -> str:
        return f"<Job {self.id} {self._status or 'not read yet'}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def refresh(self) -> "Job[R]":
        """Read the job from the store; NotFound when it does not exist any more:
        ``job.refresh().attempts``."""
        return self.update(self._client.access.run(lambda store: store.jobs.get(self.id)))

    async def arefresh(self) -> "Job[R]":
        """``refresh`` for coroutines."""
        store = await self._client.access.aready()
        return self.update(await store.jobs.get(self.id))

    def update(self, record: JobRecord | None) -> "Job[R]":
        """Take over a record that was read; NotFound for None."""
        if record is None:
            raise not_found(self.id)
        self._record = record
        self._status = record.status
        return self

    def result(self, timeout: Duration | None = None) -> R:
        """Wait until the job has ended and return its result: ``job.result(timeout=10)``.

        ``timeout`` None waits as long as it takes; 0 does not wait. Raises JobFailed when the job
        ended as dead or cancelled, ResultTimeout when it has not ended in time (it goes on),
        NotFound when it was deleted.
        """
        timeout_s = None if timeout is None else seconds(timeout, field="timeout")
        self._client.check_may_block("job.result()", "await job.aresult()")
        if timeout_s == 0:
            (peek,) = self._client.access.run(lambda store: store.jobs.peek([self.id]))
            return self._checked_result(self._check_ended(peek))
        poller, reply = self._client.poller, ThreadResult[Peek]()
        try:
            poller.wait(self.id, reply)
            if reply.wait(timeout_s):
                return self._checked_result(reply.result())
        except BaseException:
            poller.forget(self.id, reply)
            raise
        poller.forget(self.id, reply)
        raise self._timed_out(timeout_s)

    async def aresult(self, timeout: Duration | None = None) -> R:
        """``result`` for coroutines."""
        timeout_s = None if timeout is None else seconds(timeout, field="timeout")
        if timeout_s == 0:
            store = await self._client.access.aready()
            (peek,) = await store.jobs.peek([self.id])
            return await self._achecked_result(self._check_ended(peek))
        poller, reply = self._client.poller, ThreadResult[Peek]()
        try:
            poller.wait(self.id, reply)
            async with asyncio.timeout(timeout_s):
                peek = await reply.aresult()
        except TimeoutError:
            raise self._timed_out(timeout_s) from None
        finally:
            poller.forget(self.id, reply)
        return await self._achecked_result(peek)

    def cancel(self, reason: str = _REASON) -> bool:
        """Cancel the job: a waiting one never starts, a running one is asked to stop.

        Returns False when it had ended already; NotFound when there is no such job. ``reason`` is
        stored as its error.

        ``job.cancel("not needed any more")``
        """
        chosen = Selection(ids=(self.id,))
        return self._cancelled(
            self._client.access.run(
                lambda store: store.jobs.act(BulkAction.CANCEL, chosen, reason=reason, limit=1)
            )
        )

    async def acancel(self, reason: str = _REASON) -> bool:
        """``cancel`` for coroutines."""
        store = await self._client.access.aready()
        chosen = Selection(ids=(self.id,))
        return self._cancelled(
            await store.jobs.act(BulkAction.CANCEL, chosen, reason=reason, limit=1)
        )

    def retry(self) -> "Job[R]":
        """Make it pending again, with all its attempts, and return it refreshed: ``job.retry()``.

        For jobs that are failed, dead or cancelled; Refused in another state, KeyTaken while
        another live job holds its dedupe key, NotFound when there is no such job.
        """
        self._client.access.run(self._act(BulkAction.RETRY))
        return self.refresh()

    async def aretry(self) -> "Job[R]":
        """``retry`` for coroutines."""
        await self._act(BulkAction.RETRY)(await self._client.access.aready())
        return await self.arefresh()

    def run_now(self) -> "Job[R]":
        """Make it due now, and return it refreshed. For jobs that are scheduled or failed; Refused
        in another state. ``job.run_now()``"""
        self._client.access.run(self._act(BulkAction.RUN_NOW))
        return self.refresh()

    async def arun_now(self) -> "Job[R]":
        """``run_now`` for coroutines."""
        await self._act(BulkAction.RUN_NOW)(await self._client.access.aready())
        return await self.arefresh()

    def reschedule(self, delay: Duration | None = None, *, at: datetime | None = None) -> "Job[R]":
        """Let it start ``delay`` from now, or ``at`` an aware datetime, and return it refreshed.

        For jobs that wait (scheduled, pending, held, failed); Refused in another state. A time that
        has passed means now.

        ``job.reschedule("10m")``
        """
        due = due_fields(delay, at, where="job.reschedule")
        self._client.access.run(self._act(BulkAction.RESCHEDULE, **due))
        return self.refresh()

    async def areschedule(
        self, delay: Duration | None = None, *, at: datetime | None = None
    ) -> "Job[R]":
        """``reschedule`` for coroutines."""
        due = due_fields(delay, at, where="job.areschedule")
        await self._act(BulkAction.RESCHEDULE, **due)(await self._client.access.aready())
        return await self.arefresh()

    def delete(self) -> bool:
        """Delete the job with its logs and its dedupe key. False: it is running and was asked to
        stop instead. NotFound when there is no such job. ``job.delete()``"""
        return self._deleted(self._client.access.run(self._act(BulkAction.DELETE)))

    async def adelete(self) -> bool:
        """``delete`` for coroutines."""
        return self._deleted(await self._act(BulkAction.DELETE)(await self._client.access.aready()))

    def logs(self) -> list[LogLine]:
        """The lines written with ``ctx.log``, oldest first: ``job.logs()``."""
        return self._client.access.run(lambda store: store.metrics.logs(self.id))

    async def alogs(self) -> list[LogLine]:
        """``logs`` for coroutines."""
        return await (await self._client.access.aready()).metrics.logs(self.id)

    @property
    def status(self) -> JobStatus:
        """The state when the job was stored or last refreshed."""
        return self.record.status if self._status is None else self._status

    @property
    def ended(self) -> bool:
        """Whether it was done, dead or cancelled when it was stored or last refreshed."""
        return is_terminal(self.status)

    @property
    def record(self) -> JobRecord:
        """The whole record as the last ``refresh`` read it."""
        if self._record is None:
            raise Invalid(
                f"job {self.id} has not been read yet: call job.refresh() or await job.arefresh()"
            )
        return self._record

    @property
    def kind(self) -> str:
        """The name of its task."""
        return self.record.kind

    @property
    def queue(self) -> str:
        """The queue it is in."""
        return self.record.queue

    @property
    def payload(self) -> Any:
        """The arguments as plain JSON values."""
        return payload.decode(self.record.payload)

    @property
    def priority(self) -> int:
        """Lower is claimed first."""
        return self.record.priority

    @property
    def attempts(self) -> int:
        """How many attempts were started."""
        return self.record.attempts

    @property
    def max_attempts(self) -> int:
        """How many attempts it has before it becomes dead."""
        return self.record.max_attempts

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags."""
        return self.record.tags

    @property
    def error(self) -> str | None:
        """The last error, or the reason of a cancel."""
        return self.record.last_error

    @property
    def errors(self) -> tuple[AttemptError, ...]:
        """The failed attempts, oldest first, each with its traceback."""
        return self.record.errors

    @property
    def traceback(self) -> str | None:
        """The traceback of the last failed attempt, as text; None if it has none."""
        return self.record.errors[-1].traceback if self.record.errors else None

    @property
    def progress(self) -> float | None:
        """From 0 to 1, as its handler last reported it."""
        return self.record.progress

    @property
    def progress_note(self) -> str | None:
        """The text that came with the progress."""
        return self.record.progress_note

    @property
    def enqueued_at(self) -> datetime:
        """When it was stored."""
        return to_datetime(self.record.enqueued_at)

    @property
    def run_at(self) -> datetime:
        """When it is or was due."""
        return to_datetime(self.record.run_at)

    @property
    def started_at(self) -> datetime | None:
        """When its last attempt started."""
        return _datetime(self.record.started_at)

    @property
    def finished_at(self) -> datetime | None:
        """When it ended; None while it has not."""
        return _datetime(self.record.finished_at)

    def _checked_result(self, peek: Peek) -> R:
        """The result, decoded by the task of the job's kind. Only a failure reads the whole record,
        for its tracebacks, and a handle made by id, for its kind."""
        if peek.status is not JobStatus.DONE:
            raise job_failed(self.id, peek, self._read_record())
        if self._read is None:
            self._find_reader(self._record or self._read_record())
        return self._result_of(peek)

    async def _achecked_result(self, peek: Peek) -> R:
        if peek.status is not JobStatus.DONE:
            raise job_failed(self.id, peek, await self._aread_record())
        if self._read is None:
            self._find_reader(self._record or await self._aread_record())
        return self._result_of(peek)

    def _read_record(self) -> JobRecord | None:
        return self._client.access.run(lambda store: store.jobs.get(self.id))

    async def _aread_record(self) -> JobRecord | None:
        store = await self._client.access.aready()
        return await store.jobs.get(self.id)

    def _find_reader(self, record: JobRecord | None) -> None:
        found = None if record is None else self._client.reader_of(record.kind)
        self._read = found or payload.decode

    def _result_of(self, peek: Peek) -> R:
        self._status = peek.status
        read: Callable[[bytes], Any] = self._read or payload.decode
        return read(b"null" if peek.result is None else peek.result)

    def _check_ended(self, peek: Peek | None) -> Peek:
        if peek is None:
            raise not_found(self.id)
        if not is_terminal(peek.status):
            raise self._timed_out(0.0)
        return peek

    def _act(
        self, action: BulkAction, **how: Any
    ) -> "Callable[[Store], Coroutine[Any, Any, Acted]]":
        return lambda store: act_on(store, self.id, action, **how)

    def _deleted(self, acted: Acted) -> bool:
        if acted.requested:
            self._client.cancel_local(self.id)
        return bool(acted.changed)

    def _cancelled(self, acted: Acted) -> bool:
        if acted.missing:
            raise not_found(self.id)
        if acted.requested:
            self._client.cancel_local(self.id)
        return bool(acted.changed or acted.requested)

    def _timed_out(self, timeout_s: float | None) -> ResultTimeout:
        return ResultTimeout(f"job {self.id} has not ended within {timeout_s:g} s; it goes on")


def job_failed(job_id: str, peek: Peek, record: JobRecord | None) -> JobFailed:
    """The error of a job that did not succeed; ``record`` None: it was deleted meanwhile."""
    if record is None:
        return JobFailed(job_id, peek.status, peek.error)
    return JobFailed(
        job_id, peek.status, peek.error, attempts=record.attempts, errors=record.errors
    )


def _datetime(instant: Instant | None) -> datetime | None:
    return None if instant is None else to_datetime(instant)
