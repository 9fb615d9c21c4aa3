"""The records of a job: the request to store one, the claim on one, and the complete record."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, ParamSpec, Protocol, Self

from msgspec import Struct, structs

from .instant import Instant, to_datetime
from .status import JobStatus
from .steps import ClaimedSteps

P = ParamSpec("P")

DEFAULT_PRIORITY = 0
DEFAULT_MAX_ATTEMPTS = 5
ERRORS_KEPT = 32


class LaneOrder(StrEnum):
    """The order in which jobs of one lane start.

    *none*: no order. *serial*: one at a time, by age. *strict*: each when all older ones have
    ended, retries included.
    """

    NONE = "none"
    SERIAL = "serial"
    STRICT = "strict"


class UniqueWhile(StrEnum):
    """How long a dedupe key is taken, apart from ``dedupe_for``.

    *live*: until the job has ended. *waiting*: until it is marked started.
    """

    LIVE = "live"
    WAITING = "waiting"


class Successor(Struct, frozen=True, omit_defaults=True, gc=False):
    """The task to enqueue when this job becomes dead, with that task's options.

    ``per`` names the argument by which its jobs are limited. The limit key is computed when the
    arguments are known.
    """

    kind: str
    queue: str
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    priority: int = DEFAULT_PRIORITY
    timeout_s: float | None = None
    tags: tuple[str, ...] = ()
    lane: str | None = None
    order: LaneOrder = LaneOrder.NONE
    track: bool = False
    per: str | None = None
    on_dead: "Successor | None" = None
    options: Mapping[str, Any] | None = None


class NewJob(Struct, frozen=True, kw_only=True, gc=False):
    """A validated request to store one job.

    Times are relative to store time (``delay_s``, ``expires_s``) or absolute (``run_at``,
    ``expires_at``); the absolute ones take precedence. ``payload`` is JSON text that is returned
    byte for byte. ``hold`` stores the job as held, whether or not its limit bucket has room.
    ``track``: the task is known to have limits of its own, so the job is put on the task's track at
    once.
    ``options``: rare options by name, JSON values. They are stored in one column
    (docs/decisions/0107), so that a new one needs no change of a backend. None for most jobs, which
    then take the short paths.

    >>> @forge.around_enqueue
    ... def tag(job: NewJob):
    ...     yield job.replace(tags=(*job.tags, "web"))
    >>> send.enqueue("a@b.c").refresh().tags
    ('web',)
    """

    kind: str
    queue: str
    payload: bytes = b"{}"
    priority: int = DEFAULT_PRIORITY
    delay_s: float = 0.0
    run_at: Instant | None = None
    expires_s: float | None = None
    expires_at: Instant | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout_s: float | None = None
    dedupe_key: str | None = None
    dedupe_for_s: float | None = None
    unique_while: UniqueWhile = UniqueWhile.LIVE
    tags: tuple[str, ...] = ()
    limit_key: str | None = None
    lane: str | None = None
    order: LaneOrder = LaneOrder.NONE
    hold: bool = False
    track: bool = False
    on_dead: Successor | None = None
    trace: str | None = None
    options: Mapping[str, Any] | None = None

    def replace(self, **fields: Any) -> Self:
        """A copy with other values, for ``around_enqueue`` hooks: ``job.replace(tags=(...))``."""
        return structs.replace(self, **fields)


def merge_options(
    defaults: Mapping[str, Any] | None, own: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """The rare options of a task with those of one job on top. A None that the job sets counts: it
    turns the task's value off."""
    if not own:
        return defaults
    return {**defaults, **own} if defaults else own


class Bindable(Protocol[P]):
    """An object that turns call arguments into a NewJob: a task, or a task with options."""

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Check the arguments against the signature and build the request."""
        ...


class ManyBindable(Protocol):
    """An object that turns many calls into requests at once: a task, or a task with options."""

    def bind_many(self, calls: Iterable[Any]) -> list[NewJob]:
        """The requests for many calls; see ``enqueue_many`` of a task."""
        ...


class Enqueued(Struct, frozen=True, gc=False):
    """The answer to a NewJob. ``duplicate``: its dedupe key was taken; this is the job that holds
    it.

    >>> runtime = QueueRuntime(forge.store, HandlerRegistry())
    >>> asyncio.run(runtime.enqueue(EnqueueRequest(kind="send", payload={"to": "a@b.c"}))).duplicate
    False
    """

    key: int
    id: str
    duplicate: bool
    status: JobStatus


class Claim(Struct, frozen=True):
    """The right to finish one job: row key and epoch, valid for the owner that claimed it."""

    key: int
    epoch: int


class ClaimedJob(Struct, frozen=True, gc=False):
    """A claimed job, with what a worker needs. The field order is that in which backends build it.

    ``attempts`` includes this run. ``started``: the store marked it started (False: prefetched).
    ``throttled_since`` and ``missing_since`` are the starts of the two budgets. ``limit_key`` is
    also set for a job under a lane or a cap: its worker stops it when its lease may have ended.
    ``steps`` is the history of a job that has stored steps; None for all others.
    """

    key: int
    epoch: int
    kind: str
    queue: str
    payload: bytes
    attempts: int
    max_attempts: int
    enqueued_at: Instant
    run_at: Instant
    started: bool = True
    priority: int = 0
    crashes: int = 0
    timeout_s: float | None = None
    throttled_since: Instant | None = None
    missing_since: Instant | None = None
    tags: tuple[str, ...] = ()
    limit_key: str | None = None
    trace: str | None = None
    options: Mapping[str, Any] | None = None
    steps: ClaimedSteps | None = None


class AttemptError(Struct, frozen=True, omit_defaults=True):
    """One failed attempt in a job's bounded error history.

    ``traceback`` is the formatted traceback of its exception, or the last output of its program.
    Only ``JobStore.get`` reads it: in lists it is None. ``started_at``, ``due_at`` and ``owner``
    are those of the attempt. ``group`` is its error group (``core.failures``); None for an attempt
    that a cancel request ended.
    """

    at: Instant
    attempt: int
    message: str
    traceback: str | None = None
    started_at: Instant | None = None
    due_at: Instant | None = None
    owner: int | None = None
    group: str | None = None

    @property
    def moment(self) -> datetime:
        """``at`` as an aware datetime."""
        return to_datetime(self.at)


def last_group(errors: Sequence[AttemptError]) -> str | None:
    """The error group of the last failed attempt; None if none failed."""
    return next((error.group for error in reversed(errors) if error.group is not None), None)


def shown_progress(status: JobStatus, progress: float | None) -> float | None:
    """The progress of a job as a record shows it: 1 once it is done, whatever its handler reported
    last. None stays None: the handler reported nothing."""
    return 1.0 if progress is not None and status is JobStatus.DONE else progress


class LogLine(Struct, frozen=True):
    """One line a handler wrote with ``ctx.log``."""

    at: Instant
    level: str
    message: str

    @property
    def moment(self) -> datetime:
        """``at`` as an aware datetime."""
        return to_datetime(self.at)


class JobRecord(Struct, frozen=True, kw_only=True):
    """A complete stored job, for operators and tests.

    ``limit_bucket`` is the limit bucket in which a held job waits, ``last_owner`` the process that
    ran it last.

    >>> job = send.enqueue("a@b.c")
    >>> [record] = testing.enqueued(forge, send)
    >>> record.refresh().payload
    {'to': 'a@b.c'}
    """

    key: int
    id: str
    kind: str
    queue: str
    status: JobStatus
    payload: bytes
    priority: int
    attempts: int
    max_attempts: int
    epoch: int
    enqueued_at: Instant
    run_at: Instant
    owner: int | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    expires_at: Instant | None = None
    timeout_s: float | None = None
    last_error: str | None = None
    errors: tuple[AttemptError, ...] = ()
    result: bytes | None = None
    progress: float | None = None
    progress_note: str | None = None
    tags: tuple[str, ...] = ()
    dedupe_key: str | None = None
    dedupe_for_s: float | None = None
    unique_while: UniqueWhile = UniqueWhile.LIVE
    limit_key: str | None = None
    lane: str | None = None
    order: LaneOrder = LaneOrder.NONE
    limit_bucket: str | None = None
    crashes: int = 0
    throttles: int = 0
    throttled_since: Instant | None = None
    missing_since: Instant | None = None
    cancel_requested_at: Instant | None = None
    on_dead: Successor | None = None
    trace: str | None = None
    options: Mapping[str, Any] | None = None
    has_steps: bool = False
    failed_runs: int = 0
    last_owner: int | None = None
