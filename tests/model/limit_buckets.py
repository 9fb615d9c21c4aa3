"""Rules of lanes and limit keys: which due jobs become pending, and which are held.

Sources: ``JobStore.enqueue``, docs/slots-and-limits.md, docs/decisions/0040.
"""

from collections.abc import Iterable

from forge_jobs.core.job import LaneOrder

from .state import COUNTED, HELD, PENDING, Job, Limit


class LimitBuckets:
    """Admission of the jobs of the model. Every query is a scan over all of them."""

    def __init__(self) -> None:
        self.now = 0
        self.jobs: dict[int, Job] = {}
        self.limits: dict[str, Limit] = {}

    def admit_or_hold(self, job: Job) -> None:
        """A due job becomes pending, or held if its lane is occupied or its limit key full."""
        job.status, job.limit_bucket = PENDING, None
        if job.lane is not None and self._lane_blocked(job):
            job.status, job.limit_bucket = HELD, job.lane
        elif self._key_full(job):
            job.status, job.limit_bucket = HELD, job.asked.limit_key

    def admit_or_hold_all(self, due: Iterable[Job]) -> None:
        """Several jobs become due in one call: the bucket's order decides, not their due times."""
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
        """Make held jobs of these buckets pending as far as there is room."""
        for limit_bucket in buckets:
            if limit_bucket.startswith("lane:"):
                self._admit_lane(limit_bucket)
            else:
                waiting = self.held_in(limit_bucket)
                for job in waiting[: self._room(limit_bucket, len(waiting))]:
                    job.status, job.limit_bucket = PENDING, None

    def held_in(self, limit_bucket: str) -> list[Job]:
        """Held jobs of a limit bucket in the order in which they are admitted."""
        held = [
            job
            for job in self.jobs.values()
            if job.status is HELD and job.limit_bucket == limit_bucket
        ]
        lane = limit_bucket.startswith("lane:")
        return sorted(held, key=lambda job: (0 if lane else job.asked.priority, job.key))

    def reapply_limit(self, name: str) -> None:
        """The limit per key of a task has changed: its pending jobs are held and admitted anew."""
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
        counted = (job for job in self.jobs.values() if job.status in COUNTED)
        return sum(job.asked.limit_key == limit_key for job in counted)

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
        """Whether another job occupies the lane, or an older one is held (serial) or live
        (strict)."""
        others = [
            other
            for other in self.jobs.values()
            if other is not job and other.lane == job.lane and other.live
        ]
        if any(other.occupies_lane for other in others):
            return True
        strict = job.asked.order is LaneOrder.STRICT
        return any(other.key < job.key and (strict or other.status is HELD) for other in others)

    def _key_full(self, job: Job) -> bool:
        key = job.asked.limit_key
        cap = None if key is None else self.max_per_key(key)
        if key is None or cap is None:
            return False
        return sum(o is not job and o.asked.limit_key == key for o in self._counted()) >= cap

    def _counted(self) -> Iterable[Job]:
        return (job for job in self.jobs.values() if job.status in COUNTED)

    def _room(self, limit_key: str, asked: int) -> int:
        cap = self.max_per_key(limit_key)
        return asked if cap is None else max(cap - self.key_taken(limit_key), 0)
