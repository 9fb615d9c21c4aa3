"""Rules of lanes and limit keys: which due job may go on, and which one is held.

Sources: ``JobStore.enqueue``, docs/slots-and-limits.md, docs/decisions/0040.
"""

from collections.abc import Iterable

from forge_jobs.core.job import LaneOrder

from .state import GOING, HELD, PENDING, Job, Limit


class LimitBuckets:
    """Admission over all jobs of the model. Every look is a plain scan."""

    def __init__(self) -> None:
        self.now = 0
        self.jobs: dict[int, Job] = {}
        self.limits: dict[str, Limit] = {}

    def factory(self, job: Job) -> None:
        """A job is due: it becomes pending, or held when its lane or its key has no room."""
        job.status, job.limit_bucket = PENDING, None
        if job.lane is not None and self._lane_blocked(job):
            job.status, job.limit_bucket = HELD, job.lane
        elif self._key_full(job):
            job.status, job.limit_bucket = HELD, job.asked.limit_key

    def place_together(self, due: Iterable[Job]) -> None:
        """Jobs come due in one call: the order of the bucket counts, not that of their times."""
        lanes: dict[str, None] = {}
        keys: dict[str, None] = {}
        for job in due:
            job.status, job.limit_bucket = PENDING, None
            if job.buckets:
                job.status, job.limit_bucket = HELD, job.buckets[0]
            if job.lane is not None:
                lanes[job.lane] = None
            if job.asked.limit_key is not None:
                keys[job.asked.limit_key] = None
        self.admit(*lanes, *keys)

    def admit(self, *buckets: str) -> None:
        """Let held jobs of these buckets go on as far as there is room."""
        for limit_bucket in buckets:
            if limit_bucket.startswith("lane:"):
                self._admit_lane(limit_bucket)
            else:
                waiting = self.held_in(limit_bucket)
                for job in waiting[: self._room(limit_bucket, len(waiting))]:
                    job.status, job.limit_bucket = PENDING, None

    def held_in(self, limit_bucket: str) -> list[Job]:
        """Held jobs of a limit bucket in the order in which they go on."""
        held = [
            job
            for job in self.jobs.values()
            if job.status is HELD and job.limit_bucket == limit_bucket
        ]
        lane = limit_bucket.startswith("lane:")
        return sorted(held, key=lambda job: (0 if lane else job.asked.priority, job.key))

    def measure_again(self, name: str) -> None:
        """A task's key limit has changed: its pending jobs go back to their buckets first."""
        for job in self.jobs.values():
            key = job.asked.limit_key
            if job.status is PENDING and key is not None and key.partition("/")[0] == name:
                job.status, job.limit_bucket = HELD, key
        self.admit(*self.all_buckets())

    def all_buckets(self) -> list[str]:
        return sorted(
            {job.limit_bucket for job in self.jobs.values() if job.limit_bucket is not None}
        )

    def max_per_key(self, limit_key: str) -> int | None:
        """How many jobs of a limit key may be pending or running; None: any number."""
        limit = self.limits.get(limit_key.partition("/")[0])
        return limit.concurrency if limit is not None and limit.per else None

    def key_taken(self, limit_key: str) -> int:
        going = (job for job in self.jobs.values() if job.status in GOING)
        return sum(job.asked.limit_key == limit_key for job in going)

    def _admit_lane(self, lane: str) -> None:
        waiting = self.held_in(lane)
        if not waiting or self._lane_blocked(waiting[0]):
            return
        first = waiting[0]
        if self._key_full(first):
            first.limit_bucket = first.asked.limit_key
        else:
            first.status, first.limit_bucket = PENDING, None

    def _lane_blocked(self, job: Job) -> bool:
        """Somebody has the seat; or an older job waits for it (serial), or has not ended
        (strict)."""
        others = [
            other
            for other in self.jobs.values()
            if other is not job and other.lane == job.lane and other.live
        ]
        if any(other.seated for other in others):
            return True
        strict = job.asked.order is LaneOrder.STRICT
        return any(other.key < job.key and (strict or other.status is HELD) for other in others)

    def _key_full(self, job: Job) -> bool:
        key = job.asked.limit_key
        most = None if key is None else self.max_per_key(key)
        if key is None or most is None:
            return False
        return sum(o is not job and o.asked.limit_key == key for o in self._going()) >= most

    def _going(self) -> Iterable[Job]:
        return (job for job in self.jobs.values() if job.status in GOING)

    def _room(self, limit_key: str, asked: int) -> int:
        most = self.max_per_key(limit_key)
        return asked if most is None else max(most - self.key_taken(limit_key), 0)
