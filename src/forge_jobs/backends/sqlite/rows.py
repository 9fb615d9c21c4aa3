"""A job in the table: the row of a transition, its options and its rarely changed details."""

from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from forge_jobs.backends.shared.rowwise.details import Details
from forge_jobs.backends.shared.rowwise.limit_buckets import bound_lane
from forge_jobs.core.declaration import routed
from forge_jobs.core.instant import NEVER, Instant, after
from forge_jobs.core.job import LaneOrder, NewJob, Successor, UniqueWhile
from forge_jobs.core.parent import PARENT, VIA, is_link
from forge_jobs.core.status import TERMINAL, JobStatus

# Bits of ``slow_path``.
SLOW_FINISH: Final = 1
SLOW_START: Final = 2
# Another bit of ``slow_path``, which excludes it from no path: a run that ended has stored steps.
HAS_STEPS: Final = 4

# The index of ``claimable`` among the values of a new row.
_CLAIMABLE: Final = 10

BODY_BYTES: Final = 2_048
# Separates payloads that are read as one text; JSON text holds no bare control character.
SEPARATOR: Final = b"\x1e"

_INDEXED: Final = (
    JobStatus.FAILED, JobStatus.HELD, JobStatus.SUSPENDED, JobStatus.DEAD, JobStatus.CANCELLED
)  # fmt: skip
_ACTIVE: Final = (JobStatus.PENDING, JobStatus.RUNNING)
_DUE_LATER: Final = (JobStatus.SCHEDULED, JobStatus.FAILED, JobStatus.SUSPENDED)
_WAITING: Final = (JobStatus.SCHEDULED, JobStatus.FAILED, JobStatus.PENDING, JobStatus.HELD)


class Options(Struct, frozen=True, omit_defaults=True):
    """Rarely used options; NULL in the table when all of them have their default."""

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


DEFAULT_OPTIONS: Final = Options()
_options_of = msgspec.json.Decoder(Options).decode
_details_of = msgspec.json.Decoder(Details).decode
_encode = msgspec.json.encode


def read_options(text: str | None) -> Options:
    return DEFAULT_OPTIONS if text is None else _options_of(text)


def read_details(text: str | None) -> Details:
    return Details() if text is None else _details_of(text)


class Row(Struct, array_like=True):
    """A row for a transition: all columns but payload and result, in the order of ``load_rows``."""

    key: int
    status: JobStatus
    queue: str
    kind: str
    priority: int
    run_at: Instant
    epoch: int
    attempts: int
    max_attempts: int
    slow_path: int
    enqueued_at: Instant
    owner: int | None
    exchange: int | None
    started_at: Instant | None
    finished_at: Instant | None
    due_at: Instant | None
    expires_at: Instant | None
    options_text: str | None
    details_text: str | None
    last_error: str | None
    indexed_status: str | None
    dedupe_key: str | None
    limit_key: str | None
    lane: str | None
    claimable: int | None
    track: str | None = None
    claim_track: str | None = None
    bucket: str | None = None
    lane_slot: str | None = None
    limit_slot: str | None = None
    live_lane: str | None = None
    # Written only when ``result_changed``.
    result: str | None = None
    result_changed: bool = False

    def options(self) -> Options:
        return read_options(self.options_text)

    def details(self) -> Details:
        return read_details(self.details_text)

    def set_details(self, details: Details) -> None:
        """Store changed details in the row."""
        text = _encode(details).decode()
        self.details_text = None if text == "{}" else text

    def set_result(self, result: bytes | None) -> None:
        self.result = None if result is None else result.decode()
        self.result_changed = True

    def declare(self, job: NewJob) -> bool:
        """Take over what the task declares (``JobStore.declare``); always true."""
        own = self.options()
        keeps_lane = self.lane is not None
        options = msgspec.structs.replace(
            own,
            timeout_s=job.timeout_s,
            tags=job.tags,
            order=own.order if keeps_lane else job.order,
            on_dead=own.on_dead or job.on_dead,
            rare=None if job.options is None else dict(job.options),
        )
        text = _encode(options).decode()
        self.options_text = None if text == "{}" else text
        self.priority, self.max_attempts = job.priority, job.max_attempts
        self.limit_key = job.limit_key
        self.lane = self.lane if keeps_lane else job.lane
        self.track = self.kind if job.track else None
        self.attempts, self.started_at = 1, None
        return True

    def route(self, queue: str) -> None:
        """Set the queue and remove the mark ``unrouted``; ``Tx.store_routed`` writes the queue."""
        options = self.options()
        text = _encode(msgspec.structs.replace(options, rare=routed(options.rare))).decode()
        self.options_text = None if text == "{}" else text
        self.queue = queue

    def drop_expiry(self, now: Instant) -> None:
        """Remove an expiry that has passed."""
        options = self.options()
        if options.expires_at is not None and options.expires_at <= now:
            text = _encode(msgspec.structs.replace(options, expires_at=None)).decode()
            self.options_text = None if text == "{}" else text

    def remove_expiry(self) -> None:
        """Remove an expiry, whether or not it has passed."""
        options = self.options()
        if options.expires_at is not None:
            text = _encode(msgspec.structs.replace(options, expires_at=None)).decode()
            self.options_text = None if text == "{}" else text

    @property
    def has_steps(self) -> bool:
        """Whether a run that ended has stored steps."""
        return bool(self.slow_path & HAS_STEPS)

    @has_steps.setter
    def has_steps(self, value: bool) -> None:
        self.slow_path = self.slow_path & ~HAS_STEPS | (HAS_STEPS if value else 0)

    @property
    def has_details(self) -> bool:
        return self.details_text is not None

    @property
    def is_bound(self) -> bool:
        """Whether a lane, a limit key or a limit of its task applies to it."""
        return self.limit_key is not None or self.lane is not None or self.track is not None

    def lane_bucket(self) -> str | None:
        """The bucket of its lane; None without a lane, or if the lane's order is none."""
        if self.lane is None:
            return None
        return bound_lane(self.queue, self.lane, self.options().order)

    def derive_bound_columns(self) -> None:
        """Compute the columns that follow from the state, for bound rows."""
        status, lane = self.status, self.lane_bucket()
        active, held = status in _ACTIVE, status is JobStatus.HELD
        if status is JobStatus.PENDING:
            self.claimable, self.claim_track = (
                (1, None) if self.track is None else (None, self.track)
            )
        else:
            self.claim_track = None
        if not held:
            self.bucket = None
        self.limit_slot = self.limit_key if active else None
        self.lane_slot = lane if active or (held and self.bucket != lane) else None
        self.live_lane = None if status in TERMINAL else lane

    def derive_columns(self) -> None:
        """Compute the columns that follow from the state: those of the partial indexes."""
        status, options = self.status, self.options()
        is_due_later = status in _DUE_LATER and self.run_at != NEVER
        self.due_at = self.run_at if is_due_later else None
        self.expires_at = options.expires_at if status in _WAITING else None
        self.indexed_status = status if status in _INDEXED else None
        self.claimable = 1 if status is JobStatus.PENDING else None
        self.slow_path = self.slow_path & HAS_STEPS | slow_path_bits(
            dedupe_key=self.dedupe_key,
            waiting_only=options.unique_while is UniqueWhile.WAITING,
            bound=self.limit_key is not None or self.lane is not None,
            expires=options.expires_at is not None,
            cancelled=self.details_text is not None and self.details().cancel_at is not None,
        )


def slow_path_bits(
    *, dedupe_key: str | None, waiting_only: bool, bound: bool, expires: bool, cancelled: bool
) -> int:
    """The bits that exclude a job from the short path of a finish or of a start."""
    finish = SLOW_FINISH if dedupe_key is not None or bound or cancelled else 0
    start = SLOW_START if expires or (dedupe_key is not None and waiting_only) else 0
    return finish | start


def is_plain(job: NewJob) -> bool:
    """Whether a job has no options: nothing to encode, and short paths at start and finish."""
    return job.options is None and _is_bare(job)


def is_plain_child(job: NewJob) -> bool:
    """Whether the link to its parent is the only option of a job."""
    return job.options is not None and is_link(job.options) and _is_bare(job)


def _is_bare(job: NewJob) -> bool:
    """Whether a job has no options but rare ones."""
    return (
        job.dedupe_key is None
        and job.timeout_s is None
        and job.expires_s is None
        and job.expires_at is None
        and not job.tags
        and job.on_dead is None
        and job.trace is None
        and job.lane is None
        and job.limit_key is None
        and not job.track
    )


@lru_cache(maxsize=64)
def link_text(parent: str, via: str) -> str:
    """The options column of a job whose only option is its link; the same for a whole fan-out."""
    return _encode(Options(rare={PARENT: parent, VIA: via})).decode()


def is_due_now(job: NewJob) -> bool:
    """Whether a job may be claimed as soon as it is stored, whatever the time."""
    return not job.delay_s and job.run_at is None and not job.hold


def is_due(job: NewJob, now: Instant) -> bool:
    """Whether a job may be claimed as soon as it is stored at this moment."""
    return not job.delay_s > 0 if job.run_at is None else job.run_at <= now


def needs_body(payload: bytes) -> bool:
    """Whether a payload belongs in ``forge_bodies``."""
    return len(payload) > BODY_BYTES or SEPARATOR in payload


def new_row(job: NewJob, now: Instant) -> tuple[JobStatus, tuple[object, ...], bytes | None]:
    """The state of a new job, its values between key and payload in the order of ``insert_jobs``,
    and its payload; None if that belongs in ``forge_bodies``."""
    run_at = job.run_at
    if run_at is None:
        run_at = after(now, job.delay_s) if job.delay_s else now
    # Plain text for the table: the driver tries every adapter it has on an enum member.
    due_at = claimable = indexed_status = None
    if run_at > now:
        status, text, due_at = JobStatus.SCHEDULED, "scheduled", run_at
    elif job.hold:
        status, text, indexed_status = JobStatus.HELD, "held", "held"
    else:
        status, text, claimable = JobStatus.PENDING, "pending", 1
    options, slow_path, expires_at = _options_columns(job, now)
    head = (
        text, job.queue, job.kind, job.priority, run_at, job.max_attempts, slow_path, now, due_at,
        expires_at, claimable, options, indexed_status, job.dedupe_key, job.limit_key, job.lane,
    )  # fmt: skip
    return status, head, None if needs_body(job.payload) else job.payload


def bound_row(
    job: NewJob, now: Instant, bucket: str | None
) -> tuple[JobStatus, tuple[object, ...], bytes | None]:
    """``new_row`` for a job with a lane, a limit key or a track; the columns for those follow the
    other values. ``bucket`` is the limit bucket in which it must wait."""
    status, head, payload = new_row(
        job if bucket is None or job.hold else msgspec.structs.replace(job, hold=True), now
    )
    lane = None if job.lane is None else bound_lane(job.queue, job.lane, job.order)
    pending, held = status is JobStatus.PENDING, status is JobStatus.HELD
    if held and bucket is None:
        bucket = job.limit_key or lane or ""
    track = job.kind if job.track else None
    if track is not None:
        head = (*head[:_CLAIMABLE], None, *head[_CLAIMABLE + 1 :])
    bound_columns = (
        track,
        track if pending else None,
        bucket if held else None,
        lane if pending or (held and bucket != lane) else None,
        job.limit_key if pending else None,
        lane,
    )
    return status, head + bound_columns, payload


def _options_columns(job: NewJob, now: Instant) -> tuple[str | None, int, Instant | None]:
    rare = job.options
    if rare is None:
        return (None, 0, None) if _is_bare(job) else _encode_options(job, now)
    if is_link(rare) and _is_bare(job):
        return link_text(rare[PARENT], rare[VIA]), 0, None
    return _encode_options(job, now)


def _encode_options(job: NewJob, now: Instant) -> tuple[str | None, int, Instant | None]:
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
    slow_path = slow_path_bits(
        dedupe_key=job.dedupe_key,
        waiting_only=job.unique_while is UniqueWhile.WAITING,
        bound=job.limit_key is not None or job.lane is not None,
        expires=expires_at is not None,
        cancelled=False,
    )
    text = _encode(options).decode()
    return None if text == "{}" else text, slow_path, expires_at
