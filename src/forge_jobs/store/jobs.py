"""The contract for jobs. ``exchange`` is the one hot call.

Rules that hold for every method:

* All times are store time. Delays in requests are relative to it.
* A call takes effect completely or not at all.
* ``Unavailable`` means that it had no effect. ``Unknown`` means that it may have had one. ``Full``
  means that it had none, because there is no room. ``Invalid`` is raised for a request that could
  never succeed. No other exception leaves a method.
* Every transition is one of ``core.status.TRANSITIONS``.
* Successors are stored in the transaction of the transition that brings them: the jobs of
  ``Finish.jobs``, and the ``on_dead`` successor of a job that becomes dead, by whichever event.
* A transaction that stores a job is durable before the call returns.
* Methods may be called from the running event loop of any thread.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from forge_jobs.core.decide import Finish
from forge_jobs.core.events import Wait
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Claim, ClaimedJob, Enqueued, JobRecord, LogLine, NewJob
from forge_jobs.core.selection import Acted, BulkAction, Cursor, Filter, Order, Page, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import StepRecord, StepWrite

from .job_upkeep import Promoted, Reaped


class Verdict(StrEnum):
    """The store's answer to a finish.

    *applied*: written now. *already*: the same owner and epoch wrote it before, and the reply was
    lost. *stale*: the claim is no longer current; nothing was changed.
    """

    APPLIED = "applied"
    ALREADY = "already"
    STALE = "stale"


class Want(Struct, frozen=True):
    """How many jobs of a queue to claim: ``free`` start at once, ``prefetch`` more are claimed
    unstarted.

    ``kinds`` claims only these kinds; empty means any. The search reads over jobs of other kinds,
    so this is for callers that claim few jobs at a time.
    """

    queue: str
    free: int
    prefetch: int = 0
    kinds: tuple[str, ...] = ()


class Note(Struct, frozen=True):
    """Progress and log lines of a running handler.

    Ignored when the claim is stale. Stored when the job is finished or released in the same
    exchange.
    """

    claim: Claim
    progress: float | None = None
    progress_note: str | None = None
    lines: tuple[LogLine, ...] = ()


class StepAnswer(Struct, frozen=True):
    """The store's answer to a step, or to a wait that asked for an event that is there.

    *applied*: written now. *already*: the name was stored before, by this claim (its reply was
    lost) or an earlier one; ``record`` is what is stored, and it holds. *stale*: the claim is no
    longer current. The answer to a wait is *applied* without a record while there is no event, and
    *already* with the record once a step of that name is stored, by this call or before.

    Steps (``core.steps``):

    * A step is guarded by owner and epoch, as a finish is. A process whose lease has expired
      may still store steps of a job that was not taken from it.
    * The first write of a name stays for ever; later ones are answered with what is stored.
    * A transaction that stores a step is durable before the call returns.
    * A wait (``waits``) takes the oldest event of its topics and stores it as a step of kind
      *event*, if there is one.
    * ``Finish.steps`` are stored if and only if the finish is applied, also when a cancel
      request changes its target. The job's expiry is removed: it has made progress.
    * SNOOZE with ``Finish.steps.run_at``: due at that instant.
    * SUSPEND takes an event as a wait does. If there is one, the job becomes pending with that
      step stored, else suspended until an event is sent to one of the topics (``EventStore``)
      or until ``run_at``; without ``run_at`` for ever.
    * A suspended job whose ``run_at`` has come is promoted. If the deadline of its wait has
      passed, that transaction stores the event that was sent by then, else a step of kind
      *timeout*. Otherwise no step is stored: the handler waits again.
    * RESTART deletes the job's steps, then stores those of the finish and the new payload;
      ``failed_runs`` starts again at 0.
    * FAIL with ``attempt_returned`` gives the attempt back and raises ``failed_runs`` by one.
    * A claim of a job with stored steps brings the first ``MAX_CLAIMED_STEPS`` of them, in the
      order of their names, at most ``MAX_CLAIMED_BYTES`` of values but at least one step.
    * A suspended job gives up its slots of limit keys and its lane as a scheduled one does; in
      a *strict* lane the younger jobs wait for it.
    """

    verdict: Verdict
    record: StepRecord | None = None


class WaitCheck(Struct, frozen=True):
    """A running handler asks whether an event of its wait is there."""

    claim: Claim
    wait: Wait


class Exchange(Struct, frozen=True, kw_only=True):
    """One request of a worker process: finishes and releases to write, and the jobs it wants.

    ``number`` rises with every exchange of the process. Claims are stamped with it (see ``owned``).
    With ``timed`` False the times of these finishes are not added to the metrics.
    """

    owner: int
    number: int
    finish: Sequence[Finish] = ()
    release: Sequence[Claim] = ()
    started: Sequence[Claim] = ()
    notes: Sequence[Note] = ()
    want: Sequence[Want] = ()
    timed: bool = True
    steps: Sequence[StepWrite] = ()
    waits: Sequence[WaitCheck] = ()


class Exchanged(Struct, frozen=True, kw_only=True):
    """The store's reply to an exchange.

    ``verdicts`` has one entry per ``finish``, in the same order. ``cancels`` are keys of running
    jobs of this owner that have a cancel request; each is repeated until its job has ended.
    ``next_due`` is the earliest instant at which a wanted queue that had fewer jobs than wanted may
    have more: a scheduled or failed job becomes due, or a gate opens; None when not known.
    ``alive`` is False when the process was declared dead or its lease has expired; then nothing was
    claimed. ``steps`` and ``waits`` have one answer per entry of the request, in the same order.
    """

    now: Instant
    alive: bool
    control_version: int
    verdicts: Sequence[Verdict] = ()
    claims: Sequence[ClaimedJob] = ()
    cancels: Sequence[int] = ()
    next_due: Instant | None = None
    steps: Sequence[StepAnswer] = ()
    waits: Sequence[StepAnswer] = ()


class DeclaredClaim(Struct, frozen=True):
    """A claim on a job that was stored without the declaration of its task, and the request that it
    would have been with it (``core.declaration.completed``)."""

    claim: Claim
    job: NewJob


class Owned(Struct, frozen=True):
    """A running job of a process: its claim, the number of the exchange that made the claim, and
    whether the claim was marked started."""

    claim: Claim
    exchange: int
    started: bool


class Retention(Struct, frozen=True, kw_only=True):
    """How long terminal jobs are kept in queues without settings; None means for ever.

    With ``queue`` it applies to that queue alone, and overrides its settings.
    """

    queue: str | None = None
    done_s: float | None = 7 * 86_400.0
    dead_s: float | None = 30 * 86_400.0
    cancelled_s: float | None = 7 * 86_400.0


class Peek(Struct, frozen=True):
    """State, result and last error of a job, for a caller that waits for its result."""

    status: JobStatus
    result: bytes | None = None
    error: str | None = None


class JobStore(Protocol):
    """The contract for jobs: enqueue, exchange, bulk actions, retention, reads."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs in one durable transaction; one answer per request, in the same order.

        Dedupe keys:

        * Two keys are equal when kind and text are equal.
        * If the key is taken, nothing is stored and the answer is the existing job with
          ``duplicate`` set. This holds within one call as well.
        * A key is taken while its job is live, and after that for ``dedupe_for_s`` from its end.
        * With ``UniqueWhile.WAITING`` it is taken only until the job is marked started. A prefetch
          does not release it.
        * Deleting the job releases its key.

        Lanes and limit keys:

        * A due job whose lane is busy or whose limit key is full is stored as held. The same holds
          for a job that is promoted, retried or run now.
        * A lane belongs to its queue. It admits jobs in the order of their keys; priorities do not
          count. ``serial`` admits one job at a time. ``strict`` admits a job when all older ones
          have ended.
        * A limit key admits jobs by priority, then key.
        * A pending or running job takes room of its limit key and holds its lane, until it ends or
          waits for a later time.
        * The transaction that makes room admits the next job.

        Workers of the queues are notified after the commit. A notification that fails does not fail
        the call.
        """
        ...

    async def exchange(self, request: Exchange) -> Exchanged:
        """Finish, release and start claims, store notes, and claim more jobs, in one transaction.

        In this order:

        1. Notes. Then steps and waits (``StepAnswer``).
        2. Finishes, each guarded by owner and epoch alone: a process whose lease has expired may
           still finish a job that was not taken from it. One verdict per finish.

           * A cancel request turns every finish but Done into cancelled, with the reason of the
             request as ``last_error``.
           * Errors are appended to the history. The error of a missing handler whose job becomes
             scheduled only sets ``last_error``.
           * THROTTLE to scheduled closes the gate of the queue (``core.throttle.throttled``), or
             with a ``scope`` the gate of that scope instead.
           * DONE resets the gates of queue and scopes that were open long enough
             (``core.throttle.succeeded``).

        3. Releases: to pending with the attempt given back, the epoch raised and ``run_at`` kept;
           to cancelled if a cancel was requested. Stale ones are ignored.
        4. Started marks.
        5. Due jobs of the wanted queues are promoted, at least 500; expired ones are cancelled.
        6. Each want claims pending jobs in the order of priority, ``run_at``, key. A claim raises
           epoch and attempts by one and sets the owner.

           * Nothing is claimed when the process is not alive (checked in this transaction), from a
             paused queue, or from a queue whose gate is closed.
           * The first ``free`` claims of each want are marked started.
           * An expired job is never claimed.

        Limits (``store.limits``) in step 6:

        * A cap of a queue or task counts its running jobs in this transaction. Nothing is
          prefetched under a cap.
        * A rate takes one token per claim.
        * Jobs of a task with a closed scope are skipped without touching them.
        * A task with such limits has a track of its own, so that it delays no other task.
        """
        ...

    async def declare(self, owner: int, claims: Sequence[DeclaredClaim]) -> None:
        """Give claimed jobs what their tasks declare, in one durable transaction.

        * Guarded by owner and epoch; stale claims are ignored.
        * Written: priority, max_attempts, timeout, tags, rare options, limit key and track. A lane
          or an ``on_dead`` that the job has stays, else those of the request are written.
        * The claim counts as not started and as the first attempt: no handler has run so far. The
          owner releases it, or snoozes it where a lane or a limit key may have no room.
        """
        ...

    async def route(self, queues: Mapping[str, str], *, limit: int) -> int:
        """Move jobs with the mark ``unrouted`` (``core.declaration``) to the queue of their kind,
        at most ``limit`` in one transaction; ``queues`` has the queues by kind. Returns how many
        lost the mark, so that a full batch means that there may be more.

        * A running job stays, and keeps the mark.
        * A pending or held job becomes scheduled at its old time, which promotion finds due: lanes
          and limits of the new queue are looked at there. It counts as enqueued in that queue.
        * Correct when several processes do it at once. The store finds the jobs by an index.
        """
        ...

    async def owned(self, owner: int) -> list[Owned]:
        """All running jobs of a process, to reconcile claims whose reply was lost."""
        ...

    async def reap(self, *, crash_note: str, limit: int) -> Reaped:
        """Take running jobs from owners that are not alive (``core.decide.reaped``).

        * Processes whose lease has expired are declared dead first. This is final.
        * A job that had started counts a crash, and ``crash_note`` is appended to its errors.
        * The epoch is raised, so that a late finish is stale.
        * A job that becomes pending keeps its ``run_at`` and may be claimed at once.
        """
        ...

    async def promote(self, *, limit: int) -> Promoted:
        """Promote due scheduled and failed jobs to pending, and cancel expired waiting jobs.

        Together at most ``limit``.
        """
        ...

    async def unhold(self, limit_key: str, *, limit: int) -> int:
        """Make up to ``limit`` held jobs of a limit bucket pending, whether or not it has room; how
        many."""
        ...

    async def act(
        self,
        action: BulkAction,
        selection: Selection,
        *,
        reason: str = "",
        delay_s: float = 0.0,
        run_at: Instant | None = None,
        limit: int,
        after: Cursor | None = None,
    ) -> Acted:
        """Apply one action to the selected jobs.

        * CANCEL: waiting and suspended jobs are cancelled with ``reason``. Running ones get a
          cancel request, which their owner reads within a second.
        * RETRY: failed, dead and cancelled jobs become pending, due now, with attempts, crashes and
          failed runs at 0. Their steps stay. Their throttle and missing budgets start again, an
          expiry that has passed is removed, and they hold their dedupe key again. Jobs whose key
          another live job holds are skipped; of several selected jobs with one key, one is retried.
        * RUN_NOW: scheduled, failed and suspended jobs become pending now, and workers are
          notified. The wait of a suspended job is forgotten without a step: its handler waits
          again.
        * RESCHEDULE: waiting jobs become due ``delay_s`` from now, or at ``run_at`` if it is given.
          They are scheduled until then; failed ones stay failed. A time that has passed means now.
          Workers are notified, since the new time may be earlier than the old one. An expiry stays:
          a job that is not started by then is cancelled.
        * DELETE: jobs are deleted with their logs, steps and dedupe keys. A running one gets a
          cancel request instead.

        Jobs to which the action does not apply are skipped and counted.

        * All ids are processed in one call.
        * With a filter, one call processes at most ``limit`` matching jobs, whatever the effect on
          them. Repeating the call with ``next`` therefore ends.
        * Jobs enqueued after the first call are not processed.
        * BadOption for the cursor of another store.
        """
        ...

    async def purge(self, keep: Retention, *, limit: int) -> int:
        """Delete terminal jobs past the retention of their queue with their steps, lapsed dedupe
        keys, and events that are kept no longer.

        * ``keep`` applies where the queue has no settings.
        * At most ``limit`` jobs are deleted; the answer is how many.
        * A job whose key is still taken (``dedupe_for_s``) is kept until the key lapses.
        """
        ...

    async def get(self, job_id: str) -> JobRecord | None:
        """One job by public id, live or terminal; None for an unknown or foreign id. The last 8
        characters of an id are enough: of several jobs with that end, which takes 16 million jobs,
        it is the newest."""
        ...

    async def page(
        self,
        filter: Filter,
        *,
        limit: int,
        after: Cursor | None = None,
        order: Order = Order.NEWEST,
    ) -> Page:
        """Jobs that match, in an order, by default newest first. BadOption for the cursor of
        another store or order, and for an order that is not for the states of the filter.

        One call reads a bounded number of jobs, some thousand. Where few match, a page may be short
        or empty although ``next`` is set (``Page.stopped``). The same holds for the bulk actions
        above.
        """
        ...

    async def peek(self, job_ids: Sequence[str]) -> list[Peek | None]:
        """State, result and error of several jobs, in the order of the ids; None for an unknown
        one."""
        ...
