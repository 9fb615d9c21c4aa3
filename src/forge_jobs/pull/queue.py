"""JobQueue: a durable queue for scripts that dequeue their jobs themselves."""

import contextlib
import threading
from collections.abc import Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final

from forge_jobs import config
from forge_jobs.backends.url import open_store
from forge_jobs.client.store_access import StoreAccess
from forge_jobs.core import payload as json
from forge_jobs.core.errors import ForgeError, NotFound, Refused
from forge_jobs.core.instant import SECOND, Duration, seconds
from forge_jobs.core.outcome import Dead, Failed
from forge_jobs.core.retry import Retry
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.engine.requests.published_kinds_cache import PublishedKindsCache
from forge_jobs.engine.running.error_text import error_text, storable
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.kit.traceback_text import traceback_text
from forge_jobs.store.enqueuer import Enqueuer
from forge_jobs.store.jobs import Retention
from forge_jobs.store.queues import QueueChange
from forge_jobs.store.store import Store

from .claim_leases import ClaimLeases
from .claiming import ClaimAttempt, JobClaimer
from .held_jobs import HeldJobs
from .job import STATUS_OF_STATE, Job, JobStatus, from_record, status_of
from .namespace import DEFAULT_TABLE, table_name
from .open_queues import deregister_at_exit
from .requests import (
    DEFAULT_LEASE,
    id_text,
    lease_seconds,
    new_job,
    type_names,
)
from .summary import summary_text
from .work import DEFAULT_POLL, Handler, WorkLoop, WorkOptions, run_pool

_PURGE_BATCH: Final = 500
_REASON: Final = "cancelled by a script"
_KEEP_FOR_EVER: Final = QueueChange(retain_done_s=None, retain_dead_s=None, retain_cancelled_s=None)


class JobQueue:
    """A durable queue for scripts: enqueue, dequeue, complete or fail.

    >>> queue = JobQueue.open("memory://")
    >>> job_id = queue.enqueue("resize", {"path": "a.png"})
    >>> job = queue.dequeue(["resize"], lease="5m")
    >>> if job is not None:
    ...     queue.complete(job, result={"ok": True})
    >>> queue.counts()["completed"]
    1

    No worker process is needed: ``dequeue`` promotes jobs that are due and takes back jobs whose
    lease has ended. One object serves many threads, and a forked child may go on using it. Use it
    as a context manager or call ``close``.
    """

    def __init__(
        self,
        access: StoreAccess,
        table: str,
        *,
        retry: Retry | None,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self.name = table_name(table)
        self.access = access
        self._enqueuer = Enqueuer(access)
        self._published = PublishedKindsCache(access, SYSTEM_CLOCK)
        self.clock = clock
        self.entropy = entropy
        self.retry_rule = retry
        self._leases = ClaimLeases(access, self.name, clock, entropy)
        self._claimer = JobClaimer(access, self.name, self._leases, clock)
        self.held = HeldJobs(
            access,
            self.name,
            leases=self._leases,
            claimer=self._claimer,
            retry=retry,
            clock=clock,
            entropy=entropy,
        )
        access.at_fork(self._forget_parent)
        access.run(self._prepare)
        deregister_at_exit(self)

    @classmethod
    def open(
        cls,
        url: str | None = None,
        table: str = DEFAULT_TABLE,
        *,
        retry: Retry | None = None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> "JobQueue":
        """Open the queue ``table`` in the store at ``url``; creates what is missing.

        Without ``url`` the address is found as by ``Forge()``: FORGE_URL, DATABASE_URL, forge.toml,
        else ``sqlite:///forge.db``. ``retry`` sets how long a failed job waits for its retry;
        without it the queue's settings count, else 15 s, doubling up to 1 h.
        """
        name = table_name(table)
        address = config.load().url if url is None else url
        store = open_store(address, clock=clock, entropy=entropy)
        access = StoreAccess(lambda: store, migrate=config.auto_migrate)
        try:
            return cls(access, name, retry=retry, clock=clock, entropy=entropy)
        except ForgeError:
            access.close()
            raise

    def table(self, name: str, *, retry: Retry | None = None) -> "JobQueue":
        """Another queue in the same store and on the same connections: closing one closes both."""
        return JobQueue(self.access, name, retry=retry, clock=self.clock, entropy=self.entropy)

    def __repr__(self) -> str:
        return f"<JobQueue {self.name!r}>"

    def __enter__(self) -> "JobQueue":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store. A job that is still held is not released: its lease ends by itself and
        the attempt is spent."""
        if self.access.opened is not None:
            self.deregister_idle()
        self.access.close()

    def deregister_idle(self) -> None:
        """Deregister the claim leases that own no job; the next ``dequeue`` registers a new one."""
        with contextlib.suppress(ForgeError, TimeoutError):
            self._leases.deregister_idle()

    # ---------------------------------------------------------------- enqueue

    def enqueue(
        self,
        type: str,
        payload: object = None,
        *,
        priority: int | None = None,
        scheduled_at: datetime | None = None,
        max_attempts: int | None = None,
        dedupe_key: str | None = None,
        tx: object = None,
    ) -> str:
        """Store a job and return its id; the job is durable then.

        ``payload`` is any JSON value. Lower ``priority`` is dequeued first. Defaults: 0 and 3, or
        what a task of this kind and queue declares. ``scheduled_at`` (an aware datetime) delays the
        job. With ``dedupe_key``, if a live job of this type has the key, nothing is stored and the
        id of that job is returned. ``tx``: a connection; the job exists once it commits.
        ``queue.enqueue("resize", {"path": "a.png"})``
        """
        job = new_job(
            self.name,
            type,
            payload,
            published=self._published.current(),
            priority=priority,
            scheduled_at=scheduled_at,
            max_attempts=max_attempts,
            dedupe_key=dedupe_key,
        )
        if tx is not None:
            return self._enqueuer.enqueue_in(tx, (job,))[0].id
        return self._enqueuer.enqueue((job,))[0].id

    def enqueue_many(
        self,
        type: str,
        payloads: Iterable[object],
        *,
        priority: int | None = None,
        scheduled_at: datetime | None = None,
        max_attempts: int | None = None,
    ) -> list[str]:
        """Store many jobs in one transaction; returns their ids in the order of the payloads."""
        jobs = [
            new_job(
                self.name,
                type,
                body,
                published=self._published.current(),
                priority=priority,
                scheduled_at=scheduled_at,
                max_attempts=max_attempts,
            )
            for body in payloads
        ]
        return [stored.id for stored in self._enqueuer.enqueue(jobs)] if jobs else []

    # ---------------------------------------------------------------- dequeue

    def dequeue(
        self, types: Sequence[str] | None = None, *, lease: Duration = DEFAULT_LEASE
    ) -> Job | None:
        """Claim the first job that is due, of these types or of any; None when there is none.

        The order is priority, then due time. The claim lasts until ``lease`` has passed without a
        ``heartbeat``. After that the next ``dequeue`` of any script takes the job back; the attempt
        is spent.
        ``queue.dequeue(["resize"], lease="5m")``
        """
        return self.claim_next(type_names(types), lease_seconds(lease))[0]

    def claim_next(self, kinds: tuple[str, ...], lease_s: float) -> tuple[Job | None, float | None]:
        """``dequeue`` with checked arguments; without a job, in how many seconds one may be due."""
        attempt = ClaimAttempt()
        try:
            reply = self._claimer.claim(kinds, lease_s, attempt)
            job, due = self.held.hold(reply, lease_s), reply.next_due
            if job is not None or due is None:
                return job, None
            return None, max(due - reply.now, 0) / SECOND
        except BaseException:
            # The caller will never see the job.
            self._claimer.undo(attempt)
            raise

    def complete(self, job: Job | str, result: object = None) -> None:
        """Finish the job as completed; ``result`` (any JSON value) is stored with it.

        Raises LeaseLost when the lease has ended and another script may have the job, Refused when
        the job is not running, NotFound for an unknown id.
        ``queue.complete(job, {"ok": True})``
        """
        body = None
        if result is not None:
            body = json.encode(result, limit=json.MAX_RESULT_BYTES, what="result", fixed_limit=True)
        held, claim = self.held.find(job)
        self.held.finish(held, self.held.done(held, claim, body))

    def fail(
        self, job: Job | str, error: str | BaseException = "", *, permanent: bool = False
    ) -> None:
        """Finish this attempt as failed; the job is retried later while attempts are left.

        ``permanent``: the job can never succeed and becomes dead at once. Raises as ``complete``
        does.
        ``queue.fail(job, "no such file")``
        """
        text = error_text(error) if isinstance(error, BaseException) else storable(error)
        held, claim = self.held.find(job)
        outcome = Dead(text) if permanent else Failed(text)
        if isinstance(error, BaseException):
            outcome.traceback = traceback_text(error)
        self.held.finish(held, self.held.decide(held, claim, outcome))

    def release(self, job: Job | str) -> None:
        """Release the job unfinished: it is due at once and the attempt is not spent. No effect
        when its lease was lost. ``queue.release(job)``"""
        self.held.release(*self.held.find(job))

    def heartbeat(self, job: Job | str) -> bool:
        """Renew the lease of a job. False: the job was cancelled, so stop and ``fail`` it.

        Raises LeaseLost when the lease has ended before.
        ``queue.heartbeat(job)``
        """
        return self.held.heartbeat(*self.held.find(job))

    # ---------------------------------------------------------------- query and manage

    def get(self, job_id: str) -> Job | None:
        """Read a job; None for an unknown id: ``queue.get(job.id)``."""
        try:
            return from_record(self._claimer.record(id_text(job_id)))
        except NotFound:
            return None

    def counts(self) -> dict[str, int]:
        """Number of jobs by status. A failed job whose retry is due counts as pending:
        ``queue.counts()``."""
        known = dict.fromkeys((status.value for status in JobStatus), 0)
        for row in self.access.run(lambda store: store.metrics.counts()):
            if row.queue == self.name:
                known[STATUS_OF_STATE[row.status].value] += row.jobs
        if known[JobStatus.CANCELLED] == 0:
            # Included only where it is used: the nine functions know no such status.
            del known[JobStatus.CANCELLED]
        return known

    def summary(self) -> str:
        """``counts`` as one line of text: ``queue.summary()``."""
        return summary_text(self.counts())

    def cancel(self, job: Job | str) -> None:
        """Cancel a waiting job, or ask a running one to stop. Refused for one that has ended."""
        self._act(BulkAction.CANCEL, job, "cancelled")

    def retry(self, job: Job | str) -> None:
        """Make a failed, dead or cancelled job pending, due now and with all its attempts."""
        self._act(BulkAction.RETRY, job, "retried")

    def cleanup(self, older_than: Duration = "7d", *, keep_dead: bool = False) -> int:
        """Delete jobs that ended longer than ``older_than`` ago; returns how many.

        Zero deletes all jobs that have ended. A failed job waits for its retry and is not deleted.
        ``queue.cleanup(older_than="7d")``
        """
        span_s = seconds(older_than, field="older_than")
        retention = Retention(
            queue=self.name,
            done_s=span_s,
            dead_s=None if keep_dead else span_s,
            cancelled_s=span_s,
        )
        deleted = 0
        while True:
            step = self.access.run(lambda store: store.jobs.purge(retention, limit=_PURGE_BATCH))
            deleted += step
            if step < _PURGE_BATCH:
                return deleted

    # ---------------------------------------------------------------- work

    def work(
        self,
        handler: Handler,
        *,
        types: Sequence[str] | None = None,
        poll: Duration = DEFAULT_POLL,
        stop: threading.Event | None = None,
        lease: Duration = DEFAULT_LEASE,
        timeout: Duration | None = None,
    ) -> int:
        """Dequeue and handle jobs one after the other until ``stop`` is set; returns how many.

        ``handler`` takes a Job, as ``def`` or ``async def``. What it returns is the result; what it
        raises fails the job. Heartbeats are sent while it runs, for at most ``timeout``. An idle
        queue is read every ``poll``, and at once after a notification. Ctrl-C releases the job
        without spending the attempt.
        ``queue.work(print, types=["resize"], stop=stop)``
        """
        options = WorkOptions.checked(self, handler, types, poll, stop, lease, timeout)
        return WorkLoop(options).run()

    def work_pool(
        self,
        workers: int,
        handler: Handler,
        *,
        types: Sequence[str] | None = None,
        poll: Duration = DEFAULT_POLL,
        stop: threading.Event | None = None,
        lease: Duration = DEFAULT_LEASE,
        timeout: Duration | None = None,
    ) -> int:
        """``work`` on ``workers`` threads; returns when all have stopped.

        An error of a loop itself, not of a job, stops all of them and is raised.
        ``queue.work_pool(4, print, stop=stop)``
        """
        options = WorkOptions.checked(self, handler, types, poll, stop, lease, timeout)
        return run_pool(options, workers)

    # ---------------------------------------------------------------- parts

    def _act(self, action: BulkAction, job: Job | str, done: str) -> None:
        job_id = self._claimer.record(job.id if isinstance(job, Job) else id_text(job)).id
        chosen = Selection(ids=(job_id,))
        acted = self.access.run(
            lambda store: store.jobs.act(action, chosen, reason=_REASON, limit=1)
        )
        if acted.changed + acted.requested == 0:
            status = status_of(self._claimer.record(job_id))
            raise Refused(f"job {job_id} is {status} and cannot be {done}")

    def _forget_parent(self) -> None:
        self._leases.forget_parent()
        self.held.forget_parent()

    async def _prepare(self, store: Store) -> None:
        """Create the queue with no slots, so that no worker claims from it, and no retention."""
        await self._published.refresh()
        if await store.queues.get(self.name) is None:
            await store.queues.ensure(self.name, slots=0)
            await store.queues.change(self.name, _KEEP_FOR_EVER)
