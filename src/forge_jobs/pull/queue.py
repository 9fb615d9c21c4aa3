"""JobQueue: a durable queue for scripts that fetch their work themselves."""

import atexit
import contextlib
import threading
import weakref
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
from forge_jobs.core.selection import Acted, Selection
from forge_jobs.engine.running.error_text import error_text, storable
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.store.enqueuer import Enqueuer
from forge_jobs.store.jobs import Retention
from forge_jobs.store.queues import QueueChange
from forge_jobs.store.store import Store

from .claim_leases import ClaimLeases
from .claiming import Claiming, Round
from .held_jobs import HeldJobs
from .job import SHOWN, Job, JobStatus, looked_up, shown
from .namespace import DEFAULT_TABLE, table_name
from .requests import (
    DEFAULT_LEASE,
    DEFAULT_MAX_ATTEMPTS,
    id_text,
    lease_seconds,
    new_job,
    type_names,
)
from .summary import summary_text
from .work import DEFAULT_POLL, Handler, WorkLoop, WorkPlan, run_pool

_PURGED_AT_ONCE: Final = 500
_REASON: Final = "cancelled by a script"
_FOR_EVER: Final = QueueChange(retain_done_s=None, retain_dead_s=None, retain_cancelled_s=None)


class JobQueue:
    """A named queue in a store: enqueue, dequeue, complete or fail, from any script.

    No worker and no service is needed: ``dequeue`` itself brings in what has come due and what
    lost its lease. One object serves many threads; a forked child may go on using it.
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
        self.clock = clock
        self.entropy = entropy
        self.retry_rule = retry
        self._seats = ClaimLeases(access, self.name, clock, entropy)
        self._claiming = Claiming(access, self.name, self._seats, clock)
        self.holding = HeldJobs(
            access,
            self.name,
            seats=self._seats,
            claiming=self._claiming,
            retry=retry,
            clock=clock,
            entropy=entropy,
        )
        access.at_fork(self._forget_parent)
        access.run(self._prepare)
        _LIVING.add(self)

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
        """The queue ``table`` in the store at ``url`` (without one: as for ``Forge``).

        Creates what is missing; opening twice is fine. ``retry`` says how long a failed job waits;
        without it the queue's own settings do, else 15 s, doubling up to 1 h.
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
        """Another queue in the same store, over the same connections: closing one closes both."""
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
        """Let go of the store. A job that is still held is lost with its lease, not handed back."""
        if not self.access.closed:
            self.leave()
        self.access.close()

    def leave(self) -> None:
        """Give up the seats that hold nothing; the next dequeue takes new ones."""
        with contextlib.suppress(ForgeError, TimeoutError):
            self._seats.leave()

    # ---------------------------------------------------------------- enqueue

    def enqueue(
        self,
        type: str,
        payload: object = None,
        *,
        priority: int = 0,
        scheduled_at: datetime | None = None,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        dedupe_key: str | None = None,
        tx: object = None,
    ) -> str:
        """Store a job; its id. Lower ``priority`` goes first; ``scheduled_at`` in the past is now.

        With ``dedupe_key`` the id of the living job of this type that has the key, if there is one.
        With ``tx`` (an open connection to the same database) it exists once that commits.
        """
        job = new_job(
            self.name,
            type,
            payload,
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
        priority: int = 0,
        scheduled_at: datetime | None = None,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> list[str]:
        """Store many jobs in one transaction; their ids in the order of the payloads."""
        jobs = [
            new_job(
                self.name,
                type,
                body,
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
        """Claim the best job that is due, of these types or of any; None when there is none.

        It is this script's until ``lease`` has passed without ``heartbeat``, ``complete`` or
        ``fail``; then the next dequeue of anybody takes it back and the attempt is spent.
        """
        return self.take(type_names(types), lease_seconds(lease))[0]

    def take(self, kinds: tuple[str, ...], lease_s: float) -> tuple[Job | None, float | None]:
        """``dequeue`` with checked arguments; also in how many seconds to ask again, if known."""
        round = Round()
        try:
            taken = self._claiming.take(kinds, lease_s, round)
            job, due = self.holding.adopt(taken, lease_s), taken.next_due
            if job is not None or due is None:
                return job, None
            return None, max(due - taken.now, 0) / SECOND
        except BaseException:
            # Its caller will never see the job.
            self.holding.undo(round)
            raise

    def complete(self, job: Job | str, result: object = None) -> None:
        """The job has succeeded; ``result`` is kept with it.

        Raises LeaseLost when somebody else may have it by now, Refused when it is not running,
        NotFound for an unknown id.
        """
        body = None
        if result is not None:
            body = json.encode(result, limit=json.MAX_RESULT_BYTES, what="result")
        held, claim = self.holding.find(job)
        self.holding.end(held, self.holding.done(held, claim, body))

    def fail(
        self, job: Job | str, error: str | BaseException = "", *, permanent: bool = False
    ) -> None:
        """This attempt has failed; the job is tried again later while attempts are left.

        ``permanent``: it never can succeed and is dead at once. Raises as ``complete`` does.
        """
        text = error_text(error) if isinstance(error, BaseException) else storable(error)
        held, claim = self.holding.find(job)
        outcome = Dead(text) if permanent else Failed(text)
        self.holding.end(held, self.holding.finish(held, claim, outcome))

    def release(self, job: Job | str) -> None:
        """Hand the job back unfinished: due at once, the attempt not counted. No effect once its
        lease was lost."""
        self.holding.release(*self.holding.find(job))

    def heartbeat(self, job: Job | str) -> bool:
        """Begin the lease anew. False: somebody cancelled the job, so better stop and ``fail`` it.

        Raises LeaseLost when it is too late.
        """
        return self.holding.heartbeat(*self.holding.find(job))

    # ---------------------------------------------------------------- looking and acting

    def get(self, job_id: str) -> Job | None:
        """The job as it is now, or None."""
        try:
            return looked_up(self._claiming.record(id_text(job_id)))
        except NotFound:
            return None

    def counts(self) -> dict[str, int]:
        """Jobs by state. A failed job whose time has come is in line again: counted as pending."""
        known = dict.fromkeys((status.value for status in JobStatus), 0)
        for row in self.access.run(lambda store: store.metrics.counts()):
            if row.queue == self.name:
                known[SHOWN[row.status].value] += row.jobs
        if known[JobStatus.CANCELLED] == 0:
            # The original knows no such state: shown only where somebody used it.
            del known[JobStatus.CANCELLED]
        return known

    def summary(self) -> str:
        """``counts`` as one line of text."""
        return summary_text(self.counts())

    def cancel(self, job: Job | str) -> None:
        """End a waiting job; ask a running one to stop. Refused for one that has ended."""
        one = self._one(job)
        acted = self.access.run(lambda store: store.jobs.cancel(one, reason=_REASON, limit=1))
        self._acted(one, acted, "cancelled")

    def retry(self, job: Job | str) -> None:
        """Bring a failed, dead or cancelled job back, due now, with all its attempts."""
        one = self._one(job)
        acted = self.access.run(lambda store: store.jobs.retry(one, limit=1))
        self._acted(one, acted, "retried")

    def cleanup(self, older_than: Duration = "7d", *, keep_dead: bool = False) -> int:
        """Delete jobs that ended longer ago than that; how many. Zero means all that have ended.

        A failed job waits for its retry and is never deleted.
        """
        span_s = seconds(older_than, field="older_than")
        keep = Retention(
            queue=self.name,
            done_s=span_s,
            dead_s=None if keep_dead else span_s,
            cancelled_s=span_s,
        )
        gone = 0
        while True:
            step = self.access.run(lambda store: store.jobs.purge(keep, limit=_PURGED_AT_ONCE))
            gone += step
            if step < _PURGED_AT_ONCE:
                return gone

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
        """Dequeue and handle jobs one after the other until ``stop`` is set; how many there were.

        What the handler returns is the result; what it raises fails the job. Heartbeats are sent
        meanwhile. Ctrl-C hands the job back without counting the attempt.
        """
        plan = WorkPlan.checked(self, handler, types, poll, stop, lease, timeout)
        return WorkLoop(plan).run()

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
        """``work`` on that many threads; returns when all have ended.

        If one of them breaks (not its job: itself) all stop, and its error is raised.
        """
        plan = WorkPlan.checked(self, handler, types, poll, stop, lease, timeout)
        return run_pool(plan, workers)

    # ---------------------------------------------------------------- parts

    def _one(self, job: Job | str) -> Selection:
        job_id = job.id if isinstance(job, Job) else id_text(job)
        return Selection(ids=(self._claiming.record(job_id).id,))

    def _acted(self, one: Selection, acted: Acted, verb: str) -> None:
        if acted.changed + acted.requested == 0:
            (job_id,) = one.ids
            status = shown(self._claiming.record(job_id))
            raise Refused(f"job {job_id} is {status} and cannot be {verb}")

    def _forget_parent(self) -> None:
        self._seats.forget()
        self.holding.forget_parent()

    async def _prepare(self, store: Store) -> None:
        """A queue of its own: no worker has slots for it, and nothing is forgotten by itself."""
        if await store.queues.get(self.name) is None:
            await store.queues.ensure(self.name, slots=0)
            await store.queues.change(self.name, _FOR_EVER)


_LIVING: "weakref.WeakSet[JobQueue]" = weakref.WeakSet()


def _at_exit() -> None:
    for queue in list(_LIVING):
        # The end of the program is no place for complaints: an idle seat's lease ends by itself.
        with contextlib.suppress(Exception):
            queue.leave()


atexit.register(_at_exit)
