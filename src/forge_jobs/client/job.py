"""The handle of a stored job: who it is, how it stands, what came of it."""

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from forge_jobs.core import payload
from forge_jobs.core.errors import Invalid, JobFailed, NotFound, ResultTimeout
from forge_jobs.core.instant import Duration, Instant, seconds, to_datetime
from forge_jobs.core.job import AttemptError, JobRecord, LogLine
from forge_jobs.core.selection import Acted, Selection
from forge_jobs.core.status import JobStatus, is_terminal
from forge_jobs.kit.thread_result import ThreadResult
from forge_jobs.store.jobs import Peek

if TYPE_CHECKING:
    from collections.abc import Callable

    from .job_client import JobClient

R = TypeVar("R")
_REASON = "cancelled by the application"


class Job(Generic[R]):
    """A job that is in the store.

    ``id``, ``duplicate`` and the ``status`` at that time are known from the start; everything else
    is what the last ``refresh`` saw.
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
        """Read the job again. NotFound when it does not exist any more."""
        return self.take(self._client.access.run(lambda store: store.jobs.get(self.id)))

    async def arefresh(self) -> "Job[R]":
        """``refresh`` for coroutines."""
        store = await self._client.access.aready()
        return self.take(await store.jobs.get(self.id))

    def take(self, record: JobRecord | None) -> "Job[R]":
        """What a read of the job gave; NotFound for None."""
        if record is None:
            raise self._gone()
        self._record = record
        self._status = record.status
        return self

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the end and give the result.

        JobFailed when the job ended as dead or cancelled, ResultTimeout when it has not ended in
        time, NotFound when there is no such job (any more).
        """
        timeout_s = None if timeout is None else seconds(timeout, field="timeout")
        self._client.check_may_block("job.result()", "await job.aresult()")
        if timeout_s == 0:
            (peek,) = self._client.access.run(lambda store: store.jobs.peek([self.id]))
            return self._outcome(self._ended_by_now(peek))
        poller, end = self._client.poller, ThreadResult[Peek]()
        try:
            poller.wait(self.id, end)
            if end.wait(timeout_s):
                return self._outcome(end.result())
        except BaseException:
            poller.forget(self.id, end)
            raise
        poller.forget(self.id, end)
        raise self._too_late(timeout_s)

    async def aresult(self, timeout: Duration | None = None) -> R:
        """``result`` for coroutines."""
        timeout_s = None if timeout is None else seconds(timeout, field="timeout")
        if timeout_s == 0:
            store = await self._client.access.aready()
            (peek,) = await store.jobs.peek([self.id])
            return self._outcome(self._ended_by_now(peek))
        poller, end = self._client.poller, ThreadResult[Peek]()
        try:
            poller.wait(self.id, end)
            async with asyncio.timeout(timeout_s):
                return self._outcome(await end.arrived())
        except TimeoutError:
            raise self._too_late(timeout_s) from None
        finally:
            poller.forget(self.id, end)

    def cancel(self, reason: str = _REASON) -> bool:
        """Stop the job: waiting ones never start, a running one is asked to end.

        False when it had ended already; NotFound when there is no such job.
        """
        chosen = Selection(ids=(self.id,))
        return self._cancelled(
            self._client.access.run(lambda store: store.jobs.cancel(chosen, reason=reason, limit=1))
        )

    async def acancel(self, reason: str = _REASON) -> bool:
        """``cancel`` for coroutines."""
        store = await self._client.access.aready()
        chosen = Selection(ids=(self.id,))
        return self._cancelled(await store.jobs.cancel(chosen, reason=reason, limit=1))

    def logs(self) -> list[LogLine]:
        """The lines its handlers wrote with ``ctx.log``, oldest first."""
        return self._client.access.run(lambda store: store.metrics.logs(self.id))

    async def alogs(self) -> list[LogLine]:
        """``logs`` for coroutines."""
        return await (await self._client.access.aready()).metrics.logs(self.id)

    @property
    def status(self) -> JobStatus:
        """How the job stood when it was stored or last refreshed."""
        return self.record.status if self._status is None else self._status

    @property
    def record(self) -> JobRecord:
        """Everything the last refresh saw."""
        if self._record is None:
            raise Invalid(
                f"job {self.id} has not been read yet: call job.refresh() or await job.arefresh()"
            )
        return self._record

    @property
    def kind(self) -> str:
        return self.record.kind

    @property
    def queue(self) -> str:
        return self.record.queue

    @property
    def payload(self) -> Any:
        """The arguments as plain JSON values."""
        return payload.decode(self.record.payload)

    @property
    def priority(self) -> int:
        return self.record.priority

    @property
    def attempts(self) -> int:
        return self.record.attempts

    @property
    def max_attempts(self) -> int:
        return self.record.max_attempts

    @property
    def tags(self) -> tuple[str, ...]:
        return self.record.tags

    @property
    def error(self) -> str | None:
        """What went wrong last."""
        return self.record.last_error

    @property
    def errors(self) -> tuple[AttemptError, ...]:
        """The failed attempts, oldest first."""
        return self.record.errors

    @property
    def progress(self) -> float | None:
        return self.record.progress

    @property
    def progress_note(self) -> str | None:
        return self.record.progress_note

    @property
    def enqueued_at(self) -> datetime:
        return to_datetime(self.record.enqueued_at)

    @property
    def run_at(self) -> datetime:
        return to_datetime(self.record.run_at)

    @property
    def started_at(self) -> datetime | None:
        return _moment(self.record.started_at)

    @property
    def finished_at(self) -> datetime | None:
        return _moment(self.record.finished_at)

    def _outcome(self, peek: Peek) -> R:
        if peek.status is not JobStatus.DONE:
            raise JobFailed(self.id, peek.status, peek.error)
        self._status = peek.status
        read: Callable[[bytes], Any] = self._read or payload.decode
        return read(b"null" if peek.result is None else peek.result)

    def _ended_by_now(self, peek: Peek | None) -> Peek:
        if peek is None:
            raise self._gone()
        if not is_terminal(peek.status):
            raise self._too_late(0.0)
        return peek

    def _cancelled(self, acted: Acted) -> bool:
        if acted.missing:
            raise self._gone()
        if acted.requested:
            self._client.cancel_local(self.id)
        return bool(acted.changed or acted.requested)

    def _too_late(self, timeout_s: float | None) -> ResultTimeout:
        return ResultTimeout(f"job {self.id} has not ended within {timeout_s:g} s; it goes on")

    def _gone(self) -> NotFound:
        return NotFound(
            f"job {self.id} does not exist here: it was deleted, is past its retention, or belongs "
            "to another database"
        )


def _moment(instant: Instant | None) -> datetime | None:
    return None if instant is None else to_datetime(instant)
