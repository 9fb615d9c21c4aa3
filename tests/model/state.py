"""The state of the model: plain records of jobs, processes and queues, without any rule."""

from dataclasses import dataclass, field
from typing import Final

from forge_jobs.core.events import Wait
from forge_jobs.core.job import LaneOrder, NewJob
from forge_jobs.core.status import JobStatus

SECOND: Final = 1_000_000
# The contract leaves these texts to the store; it only promises that there is one.
SOME_TEXT: Final = "<any text>"

SCHEDULED, PENDING, HELD = JobStatus.SCHEDULED, JobStatus.PENDING, JobStatus.HELD
RUNNING, FAILED, SUSPENDED = JobStatus.RUNNING, JobStatus.FAILED, JobStatus.SUSPENDED
DONE, DEAD, CANCELLED = JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED
ENDED: Final = (DONE, DEAD, CANCELLED)
COUNTED: Final = (PENDING, RUNNING)


def later(now: int, seconds: float) -> int:
    """The instant that many seconds after ``now``, in whole microseconds."""
    return now + round(seconds * SECOND)


@dataclass
class Job:
    """One job as the contract describes it. ``limit_bucket`` is where a held job waits.
    ``ended_by`` names owner and epoch of the last finish that was applied."""

    key: int
    id: str
    asked: NewJob
    enqueued_at: int
    run_at: int
    expires_at: int | None
    status: JobStatus
    attempts: int = 0
    epoch: int = 0
    owner: int | None = None
    ended_by: tuple[int, int] | None = None
    number: int = 0
    started: bool = False
    finished_at: int | None = None
    last_error: str | None = None
    errors: list[tuple[int, str]] = field(default_factory=list)
    result: bytes | None = None
    crashes: int = 0
    throttles: int = 0
    throttled_since: int | None = None
    missing_since: int | None = None
    stop_at: int | None = None
    stop_reason: str = ""
    limit_bucket: str | None = None
    steps: dict[str, "Step"] = field(default_factory=dict)
    has_steps: bool = False
    failed_runs: int = 0
    wait: Wait | None = None

    @property
    def queue(self) -> str:
        return self.asked.queue

    @property
    def kind(self) -> str:
        return self.asked.kind

    @property
    def lane(self) -> str | None:
        """The limit_bucket of its lane; None when no lane binds it."""
        asked = self.asked
        if asked.lane is None or asked.order is LaneOrder.NONE:
            return None
        return f"lane:{asked.queue}/{asked.lane}"

    @property
    def buckets(self) -> list[str]:
        """The buckets that bind it: its lane first, then its limit key."""
        return [
            limit_bucket
            for limit_bucket in (self.lane, self.asked.limit_key)
            if limit_bucket is not None
        ]

    @property
    def occupies_lane(self) -> bool:
        """Whether it occupies its lane."""
        return self.status in COUNTED or (self.status is HELD and self.limit_bucket != self.lane)

    @property
    def live(self) -> bool:
        return self.status not in ENDED

    @property
    def waiting(self) -> bool:
        return self.live and self.status is not RUNNING

    def expired(self, now: int) -> bool:
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True)
class Event:
    """An event that was sent."""

    seq: int
    topic: str
    sent_at: int
    ends_at: int
    payload: bytes


@dataclass(frozen=True)
class Step:
    """A stored step; of one that took an event, ``value`` is the event's payload."""

    kind: str
    epoch: int
    began_at: int
    value: bytes | None
    event: Event | None = None


@dataclass
class Process:
    """One registered process. ``dead``: declared dead; an expired lease alone is not."""

    key: int
    host_id: str
    beat_at: int
    lease_s: float
    dead: bool = False

    def alive(self, now: int) -> bool:
        return not self.dead and later(self.beat_at, self.lease_s) > now


@dataclass
class Gate:
    """The throttle gate of a queue."""

    until: int | None = None
    count: int = 0

    def closed(self, now: int) -> bool:
        return self.until is not None and self.until > now


@dataclass
class Queue:
    """The settings of a queue that change what happens to its jobs."""

    paused: bool = False
    curve: tuple[float, float] | None = None
    retain_s: dict[JobStatus, float | None] = field(default_factory=dict)


@dataclass
class Holder:
    """The job that holds a dedupe key; ``until`` is set when the job has ended."""

    job: int
    until: int | None = None


@dataclass
class Limit:
    """The limit of a task: for each key by itself (``per``), or for all of its jobs."""

    concurrency: int | None
    per: bool


@dataclass(frozen=True)
class ExpectedExchange:
    """What the model expects of an exchange."""

    alive: bool
    verdicts: list[str]
    claims: dict[str, list[Job]]
    cancels: set[int]
    due_by: int | None
