"""What a job is in the table: the row that moves, options that stay, facts that seldom change."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from forge_jobs.core.instant import Instant, after
from forge_jobs.core.job import (
    AttemptError,
    LaneOrder,
    NewJob,
    Successor,
    UniqueWhile,
)
from forge_jobs.core.limits import lane_bucket
from forge_jobs.core.status import TERMINAL, JobStatus

# Bits of ``special``.
AT_END: Final = 1
AT_START: Final = 2

# The place of ``line`` among the values of a new row.
_LINE: Final = 10

BODY_BYTES: Final = 2_048
# Between payloads that come back in one piece of text; JSON text holds no bare control character.
SEPARATOR: Final = b"\x1e"

_ODD: Final = (JobStatus.FAILED, JobStatus.HELD, JobStatus.DEAD, JobStatus.CANCELLED)
_GOING: Final = (JobStatus.PENDING, JobStatus.RUNNING)
_TIMED: Final = (JobStatus.SCHEDULED, JobStatus.FAILED)
_WAITING: Final = (JobStatus.SCHEDULED, JobStatus.FAILED, JobStatus.PENDING, JobStatus.HELD)


class Options(Struct, frozen=True, omit_defaults=True):
    """What seldom is asked for; NULL in the table when all of it has its default."""

    timeout_s: float | None = None
    expires_at: Instant | None = None
    dedupe_for_s: float | None = None
    unique_while: UniqueWhile = UniqueWhile.LIVE
    tags: tuple[str, ...] = ()
    order: LaneOrder = LaneOrder.NONE
    on_dead: Successor | None = None
    trace: str | None = None
    # NewJob.options. A map of its own, so that a process that does not know one keeps it.
    rare: dict[str, Any] | None = None


class State(Struct, omit_defaults=True):
    """What seldom happens to a job; NULL in the table while nothing of it has."""

    crashes: int = 0
    throttles: int = 0
    throttled_since: Instant | None = None
    missing_since: Instant | None = None
    cancel_at: Instant | None = None
    cancel_reason: str | None = None
    errors: tuple[AttemptError, ...] = ()
    progress: float | None = None
    progress_note: str | None = None


DEFAULT_OPTIONS: Final = Options()
_options_of = msgspec.json.Decoder(Options).decode
_state_of = msgspec.json.Decoder(State).decode
_encode = msgspec.json.encode


def read_options(text: str | None) -> Options:
    return DEFAULT_OPTIONS if text is None else _options_of(text)


def read_state(text: str | None) -> State:
    return State() if text is None else _state_of(text)


class Row(Struct, array_like=True):
    """A row that is about to move: everything but payload and result, in the order of the SQL."""

    key: int
    status: JobStatus
    queue: str
    kind: str
    priority: int
    run_at: Instant
    epoch: int
    attempts: int
    max_attempts: int
    special: int
    enqueued_at: Instant
    owner: int | None
    exchange: int | None
    started_at: Instant | None
    finished_at: Instant | None
    due_at: Instant | None
    dies_at: Instant | None
    options_text: str | None
    state_text: str | None
    last_error: str | None
    odd: str | None
    dedupe_key: str | None
    limit_key: str | None
    lane: str | None
    line: int | None
    track: str | None = None
    side: str | None = None
    lot: str | None = None
    seat: str | None = None
    going: str | None = None
    in_lane: str | None = None
    # Written only when ``result_changed``.
    result: str | None = None
    result_changed: bool = False

    def options(self) -> Options:
        return read_options(self.options_text)

    def state(self) -> State:
        return read_state(self.state_text)

    def keep(self, state: State) -> None:
        """Put the seldom changed facts back."""
        text = _encode(state).decode()
        self.state_text = None if text == "{}" else text

    @property
    def is_bound(self) -> bool:
        """Whether a lane, a key or a limit of its task decides where it stands."""
        return self.limit_key is not None or self.lane is not None or self.track is not None

    def lane_bucket(self) -> str | None:
        """Its lane, if the lane binds it."""
        if self.lane is None:
            return None
        return bound_lane(self.queue, self.lane, self.options().order)

    def settle_bounds(self) -> None:
        """The same for rows that are bound."""
        status, lane = self.status, self.lane_bucket()
        going, held = status in _GOING, status is JobStatus.HELD
        if status is JobStatus.PENDING:
            self.line, self.side = (1, None) if self.track is None else (None, self.track)
        else:
            self.side = None
        if not held:
            self.lot = None
        self.going = self.limit_key if going else None
        self.seat = lane if going or (held and self.lot != lane) else None
        self.in_lane = None if status in TERMINAL else lane

    def settle(self) -> None:
        """Recompute what follows from the state: the columns behind the partial indexes."""
        status, options = self.status, self.options()
        self.due_at = self.run_at if status in _TIMED else None
        self.dies_at = options.expires_at if status in _WAITING else None
        self.odd = status if status in _ODD else None
        self.line = 1 if status is JobStatus.PENDING else None
        self.special = special(
            dedupe_key=self.dedupe_key,
            waiting_only=options.unique_while is UniqueWhile.WAITING,
            bound=self.limit_key is not None or self.lane is not None,
            expires=options.expires_at is not None,
            cancelled=self.state_text is not None and self.state().cancel_at is not None,
        )


def special(
    *, dedupe_key: str | None, waiting_only: bool, bound: bool, expires: bool, cancelled: bool
) -> int:
    """The bits that keep a job off the short path at its end or at its start."""
    at_end = AT_END if dedupe_key is not None or bound or cancelled else 0
    at_start = AT_START if expires or (dedupe_key is not None and waiting_only) else 0
    return at_end | at_start


def is_usual(job: NewJob) -> bool:
    """Whether a job has no options: nothing to encode, nothing to look after at start or end."""
    return (
        job.dedupe_key is None
        and job.timeout_s is None
        and job.expires_s is None
        and job.expires_at is None
        and not job.tags
        and job.on_dead is None
        and job.trace is None
        and job.options is None
        and job.lane is None
        and job.limit_key is None
        and not job.track
    )


def is_due_now(job: NewJob) -> bool:
    """Whether a job may be claimed as soon as it is stored, whatever the time."""
    return not job.delay_s and job.run_at is None and not job.hold


def is_due(job: NewJob, now: Instant) -> bool:
    """Whether a job may be claimed as soon as it is stored at this moment."""
    return not job.delay_s > 0 if job.run_at is None else job.run_at <= now


def needs_body(payload: bytes) -> bool:
    """Whether a payload belongs into the table of large ones."""
    return len(payload) > BODY_BYTES or SEPARATOR in payload


def new_row(job: NewJob, now: Instant) -> tuple[JobStatus, tuple[object, ...], bytes | None]:
    """The state of a new job, its values in the order of ``insert_jobs`` between key and payload,
    and the payload; None when that belongs into a table of its own."""
    run_at = job.run_at
    if run_at is None:
        run_at = after(now, job.delay_s) if job.delay_s else now
    # Plain text for the table: the driver tries every adapter it knows on an enumeration's member.
    due_at = line = odd = None
    if run_at > now:
        status, text, due_at = JobStatus.SCHEDULED, "scheduled", run_at
    elif job.hold:
        status, text, odd = JobStatus.HELD, "held", "held"
    else:
        status, text, line = JobStatus.PENDING, "pending", 1
    options, bits, dies_at = (None, 0, None) if is_usual(job) else _unusual(job, now)
    head = (
        text, job.queue, job.kind, job.priority, run_at, job.max_attempts, bits, now, due_at,
        dies_at, line, options, odd, job.dedupe_key, job.limit_key, job.lane,
    )  # fmt: skip
    return status, head, None if needs_body(job.payload) else job.payload


def bound_row(
    job: NewJob, now: Instant, lot: str | None
) -> tuple[JobStatus, tuple[object, ...], bytes | None]:
    """``new_row`` for a job with a lane, a limit key or a track, with where it stands behind the
    other values; ``lot`` is where it has to wait."""
    status, head, payload = new_row(
        job if lot is None or job.hold else msgspec.structs.replace(job, hold=True), now
    )
    lane = None if job.lane is None else bound_lane(job.queue, job.lane, job.order)
    going, held = status is JobStatus.PENDING, status is JobStatus.HELD
    if held and lot is None:
        lot = job.limit_key or lane or ""
    track = job.kind if job.track else None
    if track is not None:
        head = (*head[:_LINE], None, *head[_LINE + 1 :])
    bounds = (
        track,
        track if going else None,
        lot if held else None,
        lane if going or (held and lot != lane) else None,
        job.limit_key if going else None,
        lane,
    )
    return status, head + bounds, payload


def bound_lane(queue: str, lane: str, order: LaneOrder) -> str | None:
    """The lot of a lane; None for an order that binds nobody."""
    return None if order is LaneOrder.NONE else lane_bucket(queue, lane)


def _unusual(job: NewJob, now: Instant) -> tuple[str | None, int, Instant | None]:
    expires_at = job.expires_at
    if expires_at is None and job.expires_s is not None:
        expires_at = after(now, job.expires_s)
    options = Options(
        timeout_s=job.timeout_s,
        expires_at=expires_at,
        dedupe_for_s=job.dedupe_for_s,
        unique_while=job.unique_while,
        tags=job.tags,
        order=job.order,
        on_dead=job.on_dead,
        trace=job.trace,
        rare=None if job.options is None else dict(job.options),
    )
    bits = special(
        dedupe_key=job.dedupe_key,
        waiting_only=job.unique_while is UniqueWhile.WAITING,
        bound=job.limit_key is not None or job.lane is not None,
        expires=expires_at is not None,
        cancelled=False,
    )
    text = _encode(options).decode()
    return None if text == "{}" else text, bits, expires_at
