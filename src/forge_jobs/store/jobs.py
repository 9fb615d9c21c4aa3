"""The contract for jobs, with the one hot call ``exchange``.

Rules that hold for every method:

* All times are store time. Delays in requests are relative to it.
* A call either happens whole or not at all. ``Unavailable`` means certainly not; ``Unknown`` means
  perhaps; ``Full`` means not, for want of room. No other exception crosses this line, except
  ``Invalid`` for a request that could never succeed.
* Every move follows ``core.status.TRANSITIONS``. Jobs carried by a move (``Finish.jobs``, the
  ``on_dead`` successor of a job that becomes dead by whichever way) are stored in the transaction
  of that move, and any transaction that stores a job is durable before the call returns.
* Methods may be called from any thread's running event loop.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from forge_jobs.core.decide import Finish
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Claim, ClaimedJob, Enqueued, JobRecord, LogLine, NewJob
from forge_jobs.core.selection import Acted, Cursor, Filter, Page, Selection
from forge_jobs.core.status import JobStatus


class Verdict(StrEnum):
    """What became of a finish.

    *applied*: written now. *already*: the same owner and epoch wrote it before (its answer was
    lost). *stale*: the claim is no longer valid; nothing was changed.
    """

    APPLIED = "applied"
    ALREADY = "already"
    STALE = "stale"


class Want(Struct, frozen=True):
    """Room for jobs of a queue: ``free`` start at once, ``prefetch`` more are claimed unstarted.

    ``kinds`` leaves all other kinds in line; the search walks over them, so it is for callers that
    take few jobs at a time. Empty = any.
    """

    queue: str
    free: int
    prefetch: int = 0
    kinds: tuple[str, ...] = ()


class Note(Struct, frozen=True):
    """What a running handler said: progress and log lines. Ignored when the claim is stale; kept
    when the job is finished or released in the same exchange."""

    claim: Claim
    progress: float | None = None
    progress_note: str | None = None
    lines: tuple[LogLine, ...] = ()


class Exchange(Struct, frozen=True, kw_only=True):
    """One round of a worker process: what it ends, what it has room for.

    ``number`` rises with every exchange of the process; claims are stamped with it (see ``owned``).
    ``timed`` False keeps the times of these ends out of the books.
    """

    owner: int
    number: int
    finish: Sequence[Finish] = ()
    release: Sequence[Claim] = ()
    started: Sequence[Claim] = ()
    notes: Sequence[Note] = ()
    want: Sequence[Want] = ()
    timed: bool = True


class Exchanged(Struct, frozen=True, kw_only=True):
    """The store's answer to an exchange.

    ``verdicts`` line up with ``finish``. ``cancels`` are keys of running jobs of this owner that
    were asked to stop; they are repeated until the job has ended. ``next_due`` is the earliest
    instant at which one of the wanted queues may have more to claim although it had less than
    wanted now (a scheduled or failed job comes due, or a gate opens); None when nothing is known.
    ``alive`` False: the process was declared dead or its lease has run out, nothing was claimed.
    """

    now: Instant
    alive: bool
    control_version: int
    verdicts: Sequence[Verdict] = ()
    claims: Sequence[ClaimedJob] = ()
    cancels: Sequence[int] = ()
    next_due: Instant | None = None


class Owned(Struct, frozen=True):
    """A running row of a process, as the store sees it."""

    claim: Claim
    exchange: int
    started: bool


class Reaped(Struct, frozen=True):
    """What a reaper pass did; ``more`` when its limit was reached."""

    pending: int = 0
    dead: int = 0
    cancelled: int = 0
    more: bool = False


class Promoted(Struct, frozen=True):
    """What a promote pass did; ``next_due`` is the earliest waiting time left (or expiry)."""

    promoted: int = 0
    expired: int = 0
    next_due: Instant | None = None
    more: bool = False


class Retention(Struct, frozen=True, kw_only=True):
    """How long ended jobs are kept where their queue does not say; None = for ever.

    With ``queue`` it is an order instead: it holds for that queue alone, whatever its settings say.
    """

    queue: str | None = None
    done_s: float | None = 7 * 86_400.0
    dead_s: float | None = 30 * 86_400.0
    cancelled_s: float | None = 7 * 86_400.0


class Peek(Struct, frozen=True):
    """The little that somebody waiting for a result needs."""

    status: JobStatus
    result: bytes | None = None
    error: str | None = None


class JobStore(Protocol):
    """Where jobs live."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs in one durable transaction; the answers line up with the requests.

        A taken dedupe key gives the existing job with ``duplicate`` set, also within one call.
        Keys are equal when kind and text are equal. A key is taken while its job is live, after
        that for ``dedupe_for_s`` from its end, or with ``UniqueWhile.WAITING`` only until the job
        is marked started (a prefetch does not free it). Deleting the job frees its key.
        Wakes workers of the queues after the commit; a failed wake-up fails nothing.

        A job whose lane is busy or whose limit key is full is stored as held, and so is one that
        comes due, is brought back or run now by a person. A lane belongs to its queue; in order of
        keys it lets one job at a time on (``serial``), or one when all older ones have ended
        (``strict``); priorities do not count within a lane. Jobs of a key go on by priority, then
        key. A job that is pending or running takes its key's room and its lane's seat until it
        ends or waits for a later time; whatever makes room lets the next one on in its own
        transaction.
        """
        ...

    async def exchange(self, request: Exchange) -> Exchanged:
        """End claims, hand back, mark started, note, and claim more: one transaction.

        In this order: notes; finishes (each guarded by owner and epoch alone, so that a process
        whose lease ran out may still end what nobody has taken from it; verdict per finish);
        releases (to pending with the attempt given back, the epoch raised and ``run_at`` kept; to
        cancelled if requested; stale ones are ignored); started marks; then due rows of the wanted
        queues are promoted (at least 500, expired ones cancelled instead) and each want is served:
        pending rows in order of priority, run_at, key; epoch + 1, attempts + 1. Nothing is claimed
        from a paused queue, from one whose gate is closed, or when the process is not alive
        (checked in the same transaction). The first ``free`` claims of each want are marked
        started. An expired row is never claimed. A cancel request turns every finish but Done into
        cancelled, with the request's reason as ``last_error``. THROTTLE to scheduled moves the
        queue's gate (``core.throttle.throttled``), DONE lets it fade (``succeeded``). Errors go to
        the history; that of a missing handler whose job goes on waiting only to ``last_error``.

        Limits (``store.limits``): a queue's or task's cap counts its running jobs in this very
        transaction; a rate takes one saved-up start per claim; jobs of a task with a closed scope
        are passed over without touching them. A task that has such limits stands in a line of its
        own, so that it delays no other. THROTTLE with a ``scope`` closes that scope instead of the
        queue. Nothing is claimed ahead under a cap.
        """
        ...

    async def owned(self, owner: int) -> list[Owned]:
        """All running rows of a process, to find claims whose answer was lost."""
        ...

    async def reap(self, *, crash_note: str, limit: int) -> Reaped:
        """Take running jobs from owners that are not alive (``core.decide.reaped``).

        Processes whose lease ran out are declared dead first, for good. Started jobs count a crash
        and get ``crash_note`` in their error history; the epoch is raised, so that a late finish is
        stale. Jobs back in pending are due at once and keep their ``run_at``.
        """
        ...

    async def promote(self, *, limit: int) -> Promoted:
        """Move due scheduled and failed jobs to pending, and expired waiting jobs to cancelled."""
        ...

    async def unhold(self, limit_key: str, *, limit: int) -> int:
        """Move up to ``limit`` held jobs of a lot to pending, room or not; how many moved."""
        ...

    async def cancel(
        self, selection: Selection, *, reason: str, limit: int, after: Cursor | None = None
    ) -> Acted:
        """Cancel waiting jobs; ask running ones to stop (their owner hears it within a second).

        For this and the three verbs below: ids are all done in one call. With a filter one call
        looks at no more than ``limit`` matching rows, whatever becomes of them, so that repeating
        it with ``next`` always ends; jobs enqueued after the first call are not met. BadOption for
        a foreign cursor.
        """
        ...

    async def retry(
        self, selection: Selection, *, limit: int, after: Cursor | None = None
    ) -> Acted:
        """Bring failed, dead and cancelled jobs back to pending with attempts and crashes at 0.

        Due now; the throttle and missing budgets begin anew, an expiry that has passed is dropped,
        and the job holds its key again. Skipped and counted: other states, and jobs whose key
        another live job holds (of several with one key, one is brought back).
        """
        ...

    async def run_now(
        self, selection: Selection, *, limit: int, after: Cursor | None = None
    ) -> Acted:
        """Make scheduled and failed jobs pending at once; wakes workers."""
        ...

    async def delete(
        self, selection: Selection, *, limit: int, after: Cursor | None = None
    ) -> Acted:
        """Remove jobs with their logs and keys; a running one is asked to stop instead."""
        ...

    async def purge(self, keep: Retention, *, limit: int) -> int:
        """Remove ended jobs past their queue's retention (``keep`` where the queue has no row or no
        setting), and lapsed dedupe keys; at most ``limit`` jobs. How many were removed. A job
        whose key is still taken (``dedupe_for_s``) stays until the key lapses."""
        ...

    async def get(self, job_id: str) -> JobRecord | None:
        """One job by public id, live or ended; None for an unknown or foreign id."""
        ...

    async def page(self, filter: Filter, *, limit: int, after: Cursor | None = None) -> Page:
        """Jobs that match, newest first, by cursor. Raises BadOption for a foreign cursor.

        One call looks at a bounded number of jobs, some thousand: where few match, a page may be
        short or empty although ``next`` leads on (``Page.stopped``). The same holds for the bulk
        verbs above.
        """
        ...

    async def peek(self, job_ids: Sequence[str]) -> list[Peek | None]:
        """State and result of many jobs at once, for whoever waits for them."""
        ...
