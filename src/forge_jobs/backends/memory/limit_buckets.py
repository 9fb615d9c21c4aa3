"""Limit buckets: where jobs of full limit keys and busy lanes wait, and which of them may leave.

This module decides; ``transitions`` applies. A job in a lane first becomes the lane's *holder*, and
stays it until it waits for a retry or ends. A job with a limit key counts for it from pending on.
"""

from collections.abc import Mapping

from forge_jobs.core.job import LaneOrder
from forge_jobs.core.limits import UNBOUNDED, Limit, limit_of
from forge_jobs.core.status import TERMINAL, JobStatus

from .rows import Row

_ACTIVE = (JobStatus.PENDING, JobStatus.RUNNING)


class LimitBuckets:
    """Indexes over the jobs that have a lane or a limit key."""

    def __init__(self) -> None:
        self._held: dict[str, dict[int, Row]] = {}
        self._active: dict[str, dict[int, Row]] = {}
        self._lane_holders: dict[str, dict[int, Row]] = {}
        self._lanes: dict[str, dict[int, Row]] = {}

    def add(self, row: Row) -> None:
        """Index a job by its new state, after a transition."""
        for index, name in self._entries(row):
            index.setdefault(name, {})[row.key] = row

    def remove(self, row: Row) -> None:
        """Remove a job from the indexes, before a transition."""
        for index, name in self._entries(row):
            rows = index[name]
            del rows[row.key]
            if not rows:
                del index[name]

    def names(self) -> list[str]:
        """The names of all buckets in which a job waits, sorted."""
        return sorted(self._held)

    def waiting(self, bucket: str) -> list[Row]:
        """The jobs of a bucket in the order in which they leave it.

        In the bucket of a lane by key, in that of a limit key by priority, then key.
        """
        rows = self._held.get(bucket, {}).values()
        return sorted(
            rows, key=lambda row: (0 if row.lane_bucket == bucket else row.priority, row.key)
        )

    def taken(self, limit_key: str) -> int:
        """How many jobs of a limit key are pending or running."""
        return len(self._active.get(limit_key, ()))

    def active(self, limit: str) -> list[Row]:
        """The pending and running jobs of all keys of a limit."""
        return [
            row
            for key, rows in self._active.items()
            if limit_of(key) == limit
            for row in rows.values()
        ]

    def lane_holder(self, lane: str) -> Row | None:
        """The job that holds a lane; None when the lane is free."""
        return next(iter(self._lane_holders.get(lane, {}).values()), None)

    def lane_head(self, lane: str) -> Row | None:
        """The job for which a lane waits: its holder, else its oldest live job."""
        rows = self._lanes.get(lane, {})
        return self.lane_holder(lane) or min(rows.values(), key=lambda row: row.key, default=None)

    def blocker(self, lane: str, row: Row) -> Row | None:
        """The job of the lane for which ``row`` has to wait; None when it need not wait."""
        lane_holder = self.lane_holder(lane)
        if lane_holder is not None:
            return lane_holder
        strict = row.job.order is LaneOrder.STRICT
        older = [
            other
            for key, other in self._lanes.get(lane, {}).items()
            if key < row.key
            and (strict or other.job.order is LaneOrder.STRICT or other.status is JobStatus.HELD)
        ]
        return min(older, key=lambda other: other.key, default=None)

    def bucket_for(self, row: Row, limits: Mapping[str, Limit]) -> str | None:
        """The bucket in which a due job has to wait; None when it may become pending."""
        lane = row.lane_bucket
        if lane is not None and self.blocker(lane, row) is not None:
            return lane
        return self._full_key(row, limits)

    def ready(self, bucket: str, limits: Mapping[str, Limit], max_jobs: int) -> list[Row]:
        """The jobs of a bucket that may leave it now, at most ``max_jobs``."""
        waiting = self.waiting(bucket)
        if waiting and waiting[0].lane_bucket == bucket:
            return waiting[:1] if self.blocker(bucket, waiting[0]) is None else []
        room = min(max_per_key(bucket, limits) - self.taken(bucket), max_jobs)
        return waiting[: max(room, 0)]

    def next_bucket(self, row: Row, bucket: str, limits: Mapping[str, Limit]) -> str | None:
        """The bucket a job goes to from ``bucket``: its full limit key; None means pending."""
        return self._full_key(row, limits) if bucket == row.lane_bucket else None

    def _full_key(self, row: Row, limits: Mapping[str, Limit]) -> str | None:
        key = row.job.limit_key
        if key is None or self.taken(key) < max_per_key(key, limits):
            return None
        return key

    def _entries(self, row: Row) -> list[tuple[dict[str, dict[int, Row]], str]]:
        entries: list[tuple[dict[str, dict[int, Row]], str]] = []
        lane, active = row.lane_bucket, row.status in _ACTIVE
        if row.status is JobStatus.HELD and row.limit_bucket is not None:
            entries.append((self._held, row.limit_bucket))
        if active and row.job.limit_key is not None:
            entries.append((self._active, row.job.limit_key))
        if lane is not None and row.status not in TERMINAL:
            entries.append((self._lanes, lane))
            if active or (row.status is JobStatus.HELD and row.limit_bucket != lane):
                entries.append((self._lane_holders, lane))
        return entries


def max_per_key(limit_key: str, limits: Mapping[str, Limit]) -> int:
    """How many jobs of a limit key may run at once."""
    limit = limits.get(limit_of(limit_key))
    if limit is None or limit.per is None or limit.concurrency is None:
        return UNBOUNDED
    return limit.concurrency
