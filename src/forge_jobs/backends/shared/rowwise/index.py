"""The indexes of a row-wise store over its jobs, as ordered entries.

An entry is a group (text) and a position (numbers, the last of which is the key of the job). The
entries of a row follow from its state alone. Nothing here decides about a job.
"""

from collections.abc import Iterator
from typing import Final, Protocol, TypeAlias

from forge_jobs.core.declaration import is_unrouted
from forge_jobs.core.instant import NEVER, Instant
from forge_jobs.core.status import TERMINAL, WAITING, JobStatus

from .rows import Row

Group: TypeAlias = "tuple[str, ...]"
Position: TypeAlias = "tuple[int, ...]"

_ACTIVE: Final = (JobStatus.PENDING, JobStatus.RUNNING)
_JOBS: Final = ("jobs",)
_EXPIRING: Final = ("expiring",)


class OrderedEntries(Protocol):
    """Where a store keeps the entries. Positions of a group are ordered as tuples of numbers."""

    def add(self, group: Group, position: Position) -> None: ...

    def remove(self, group: Group, position: Position) -> None:
        """Remove an entry that was added."""
        ...

    def scan(self, group: Group) -> Iterator[Position]:
        """The positions of a group in ascending order. The caller may remove those it has seen."""
        ...

    def scan_down(self, group: Group, below: int | None) -> Iterator[Position]:
        """The positions of a group in descending order, those with a first number below the given
        one."""
        ...

    def count(self, group: Group) -> int: ...

    def groups(self, prefix: Group) -> list[Group]:
        """The groups that begin with ``prefix`` and have entries, in order."""
        ...


def entries(row: Row) -> Iterator[tuple[Group, Position]]:
    """All entries of a row in its present state."""
    status, key, queue = row.status, row.key, row.queue
    yield _JOBS, (key,)
    if status is JobStatus.PENDING:
        yield ("pending", queue, row.track or ""), (row.job.priority, row.run_at, key)
    elif status is JobStatus.RUNNING:
        yield ("running", str(row.owner)), (key,)
    elif status is JobStatus.HELD:
        yield ("held", row.bucket or ""), (row.job.priority, key)
    elif status in TERMINAL:
        yield ("ended", queue, status), (row.finished_at or 0, key)
    elif row.run_at != NEVER:
        yield ("due", queue), (row.run_at, key)
    if (group := row.error_group) is not None:
        yield ("error group", group), (key,)
    if is_unrouted(row.job.options):
        yield ("unrouted", row.kind), (key,)
    if row.expires_at is not None and status in WAITING:
        yield _EXPIRING, (row.expires_at, key)
    active = status in _ACTIVE
    if active and row.limit_key is not None:
        yield ("limit slot", row.limit_key), (key,)
    lane = row.lane_bucket()
    if lane is not None and status not in TERMINAL:
        yield ("lane", lane), (key,)
        if active or (status is JobStatus.HELD and row.bucket != lane):
            yield ("lane slot", lane), (key,)
        elif status is JobStatus.HELD:
            yield ("lane waits", lane), (key,)


class JobIndex:
    """The questions that the rules ask, over the entries of all jobs. Answers are keys of jobs."""

    def __init__(self, ordered: OrderedEntries) -> None:
        self._entries = ordered

    def add(self, row: Row) -> None:
        for group, position in entries(row):
            self._entries.add(group, position)

    def remove(self, row: Row) -> None:
        for group, position in entries(row):
            self._entries.remove(group, position)

    def newest(self, below: int | None = None) -> Iterator[int]:
        """All jobs with keys below the given one, newest first."""
        return (key for (key,) in self._entries.scan_down(_JOBS, below))

    def of_error_group(self, group: str, below: int | None = None) -> Iterator[int]:
        """The jobs of an error group with keys below the given one, newest first."""
        return (key for (key,) in self._entries.scan_down(("error group", group), below))

    def tracks(self, queue: str) -> list[str]:
        """The tracks of a queue that have pending jobs; "" for jobs that have no track."""
        return [group[2] for group in self._entries.groups(("pending", queue))]

    def pending(self, queue: str, track: str) -> Iterator[int]:
        """The pending jobs of a track, in the order in which they are claimed."""
        return (position[2] for position in self._entries.scan(("pending", queue, track)))

    def pending_queues(self) -> list[str]:
        return sorted({group[1] for group in self._entries.groups(("pending",))})

    def unrouted(self, kind: str) -> Iterator[int]:
        """The jobs of a kind that wait for its queue to be published, oldest first."""
        return (key for (key,) in self._entries.scan(("unrouted", kind)))

    def first_due(self, queue: str) -> tuple[Instant, int] | None:
        """The scheduled, failed or suspended job of a queue that comes due first, with its time."""
        return _pair(self._entries.scan(("due", queue)))

    def waiting_queues(self) -> list[str]:
        """Queues with jobs that come due later."""
        return [group[1] for group in self._entries.groups(("due",))]

    def first_expiring(self) -> tuple[Instant, int] | None:
        """The waiting job that expires first, with its expiry."""
        return _pair(self._entries.scan(_EXPIRING))

    def ended_groups(self) -> list[tuple[str, JobStatus]]:
        """The queues and states of terminal jobs."""
        return [(group[1], JobStatus(group[2])) for group in self._entries.groups(("ended",))]

    def ended(self, queue: str, status: JobStatus, latest: Instant) -> Iterator[int]:
        """Terminal jobs that finished no later than ``latest``, oldest first."""
        for finished_at, key in self._entries.scan(("ended", queue, status)):
            if finished_at > latest:
                return
            yield key

    def owners(self) -> list[int]:
        """The processes that have running jobs."""
        return [int(group[1]) for group in self._entries.groups(("running",))]

    def running(self, owner: int) -> list[int]:
        """The running jobs of a process."""
        return [key for (key,) in self._entries.scan(("running", str(owner)))]

    def buckets(self) -> list[str]:
        """The limit buckets in which a job waits, by name."""
        return [group[1] for group in self._entries.groups(("held",))]

    def held(self, bucket: str) -> Iterator[int]:
        """The held jobs of a bucket, by priority and key."""
        return (key for _, key in self._entries.scan(("held", bucket)))

    def first_held(self) -> Iterator[int]:
        """The first held job of each limit bucket and priority."""
        for bucket in self.buckets():
            last: int | None = None
            for priority, key in self._entries.scan(("held", bucket)):
                if priority != last:
                    yield key
                last = priority

    def slots_in_use(self, limit_key: str) -> int:
        """How many jobs of a limit key are pending or running."""
        return self._entries.count(("limit slot", limit_key))

    def limit_keys(self) -> list[str]:
        """The limit keys that have pending or running jobs."""
        return [group[1] for group in self._entries.groups(("limit slot",))]

    def active(self, limit_key: str) -> list[int]:
        """The pending and running jobs of a limit key."""
        return [key for (key,) in self._entries.scan(("limit slot", limit_key))]

    def lane(self, lane: str) -> Iterator[int]:
        """The live jobs of a lane, oldest first."""
        return (key for (key,) in self._entries.scan(("lane", lane)))

    def lane_slot_holder(self, lane: str) -> int | None:
        """The job that holds the slot of a lane."""
        return next((key for (key,) in self._entries.scan(("lane slot", lane))), None)

    def lane_head(self, lane: str) -> int | None:
        """The oldest job that waits for the slot of a lane."""
        return next((key for (key,) in self._entries.scan(("lane waits", lane))), None)


def _pair(found: Iterator[Position]) -> tuple[int, int] | None:
    first = next(found, None)
    return None if first is None else (first[0], first[1])
