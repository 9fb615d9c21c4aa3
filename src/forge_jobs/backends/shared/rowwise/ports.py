"""What the row-wise rules need from a store: one mutable job, and one write transaction.

A rule loads rows, changes them and stores them. Nothing else of a store is visible to it.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from forge_jobs.backends.shared.error_groups import FailedAttempt
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Enqueued, LogLine, NewJob, Successor, UniqueWhile
from forge_jobs.core.retry import Backoff
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.throttle import Gate

from .counters import TransactionCounters
from .details import Details
from .step_ports import StepTables


class RowOptions(Protocol):
    """The options of a job that a transition reads."""

    @property
    def dedupe_for_s(self) -> float | None: ...
    @property
    def unique_while(self) -> UniqueWhile: ...
    @property
    def tags(self) -> tuple[str, ...]: ...
    @property
    def on_dead(self) -> Successor | None: ...
    @property
    def trace(self) -> str | None: ...


class JobRow(Protocol):
    """One job. ``owner`` and ``epoch`` are the fencing token of its last claim; ``bucket`` is the
    limit bucket in which a held job waits. ``has_steps``: a run that ended has stored steps."""

    status: JobStatus
    run_at: Instant
    epoch: int
    attempts: int
    owner: int | None
    started_at: Instant | None
    finished_at: Instant | None
    last_error: str | None
    bucket: str | None

    @property
    def has_steps(self) -> bool: ...
    @has_steps.setter
    def has_steps(self, value: bool) -> None: ...
    @property
    def key(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def enqueued_at(self) -> Instant: ...
    @property
    def dedupe_key(self) -> str | None: ...
    @property
    def limit_key(self) -> str | None: ...
    @property
    def is_bound(self) -> bool:
        """Whether a lane, a limit key or a limit of its task applies to it."""
        ...

    @property
    def has_details(self) -> bool:
        """Whether one of its details differs from the default."""
        ...

    def lane_bucket(self) -> str | None:
        """The bucket of its lane; None without a lane, or if the lane's order is none."""
        ...

    def options(self) -> RowOptions: ...

    def details(self) -> Details:
        """A copy of the details; ``set_details`` puts it back."""
        ...

    def set_details(self, details: Details) -> None: ...

    def set_result(self, result: bytes | None) -> None: ...

    def route(self, queue: str) -> None:
        """Set the queue and remove the mark ``unrouted``."""
        ...

    def drop_expiry(self, now: Instant) -> None:
        """Remove an expiry that has passed."""
        ...

    def remove_expiry(self) -> None: ...


class KeyHolder(Struct, frozen=True):
    """The job that holds a dedupe key."""

    key: int
    status: JobStatus
    enqueued_at: Instant


R = TypeVar("R", bound=JobRow)


class JobTransaction(Protocol[R]):
    """One write transaction.

    ``tag`` is the store's part of public ids. ``touched_buckets`` are the limit buckets whose held
    jobs may be admitted because of it, in order; ``limit_buckets.admit_touched`` handles them
    before the commit. ``failures`` are failed attempts with the keys of their jobs; the store
    counts them in their error groups before the commit. ``notify_queues`` are notified after it.
    """

    touched_buckets: dict[str, None]
    failures: "list[tuple[int, FailedAttempt]]"

    @property
    def now(self) -> Instant: ...
    @property
    def tag(self) -> int: ...
    @property
    def counters(self) -> TransactionCounters: ...
    @property
    def notify_queues(self) -> set[str]: ...
    @property
    def steps(self) -> StepTables: ...

    def raise_control_version(self) -> None: ...

    def load(self, keys: Iterable[int]) -> dict[int, R]:
        """The rows with these keys, by key; missing ones are left out."""
        ...

    def store(self, rows: Sequence[R]) -> None:
        """Write rows back after their transitions."""
        ...

    def delete(self, rows: Sequence[R]) -> None:
        """Delete rows with their payloads, logs, tracebacks, steps and waits."""
        ...

    def insert(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]: ...
    def current_claims(self, owner: int, keys: Iterable[int]) -> set[tuple[int, int]]:
        """Key and epoch of those of these jobs that a process runs."""
        ...

    def payload(self, row: R) -> bytes: ...
    def set_payload(self, row: R, payload: bytes) -> None: ...
    def append_log(self, row: R, lines: Sequence[LogLine]) -> None: ...

    def add_traceback(self, row: R, traceback: str) -> None:
        """Store the traceback of the error that was just added; keeps the newest ``ERRORS_KEPT``
        of a job."""
        ...

    def count(self, row: R, source: JobStatus, event: Event) -> None:
        """Count a transition from ``source`` to the present state."""
        ...

    # Cancel requests: what the owner of a running job reads with its next exchange.

    def add_cancel(self, row: R) -> None: ...
    def delete_cancel(self, row: R) -> None: ...

    # Throttle gates.

    def gate(self, name: str) -> Gate: ...
    def set_gate(self, name: str, gate: Gate) -> None: ...

    def backoff(self, queue: str) -> Backoff | None:
        """The back-off of a queue for throttles without a delay, if it is enabled."""
        ...

    # Dedupe keys: the methods of this group have an effect only on a key that the row holds, apart
    # from ``take_key``.

    def key_holder(self, kind: str, dedupe_key: str) -> KeyHolder | None: ...
    def take_key(self, row: R) -> None: ...
    def free_key(self, row: R) -> None: ...
    def retain_key(self, row: R, until: Instant) -> None: ...

    # Limit buckets.

    def max_per_key(self, limit_key: str) -> int:
        """The number of slots of a limit key; ``core.limits.UNBOUNDED`` without a limit."""
        ...

    def slots_in_use(self, limit_key: str, max_slots: int) -> int:
        """How many jobs of a limit key are pending or running, counted up to ``max_slots``."""
        ...

    def held_in_bucket(self, bucket: str, limit: int) -> Sequence[int]:
        """The first held jobs of a bucket, by priority and key."""
        ...

    def lane_head(self, lane: str) -> tuple[int, bool] | None:
        """The oldest job that waits for a lane's slot, and whether its order is strict."""
        ...

    def lane_slot_taken(self, lane: str) -> bool: ...

    def older_in_lane(self, lane: str, key: int, *, strict: bool) -> bool:
        """Whether the job must wait for an older live one of its lane: for any if ``strict``, else
        for a strict one."""
        ...

    def lane_busy(self, lane: str) -> bool:
        """Whether a lane's slot is taken or a job waits for it."""
        ...

    def lane_scheduled(self, lane: str) -> tuple[bool, bool]:
        """For a lane that is not busy: whether one of its jobs that wait for a later time is
        strict, and whether there are any."""
        ...
