"""Claims the jobs of one want, as far as the limits of their queue and tasks allow."""

from forge_jobs.core.instant import Instant
from forge_jobs.core.job import ClaimedJob
from forge_jobs.core.limits import (
    Limit,
    Room,
    mark_exclusive,
    next_start_at,
    queue_limit,
    room,
    spent,
    task_limit,
)
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.jobs import Exchange, Want

from . import claims, transitions
from .rows import Row
from .tables import Tables


class LimitedClaim:
    """The claim for one want. ``next_times`` are when a rate or a scope lets more jobs start."""

    def __init__(self, tables: Tables, request: Exchange, want: Want, now: Instant) -> None:
        self._tables = tables
        self._request = request
        self._want = want
        self._now = now
        self._free = max(want.free, 0)
        self._wanted = self._free + max(want.prefetch, 0)
        self._queue_limit = tables.limits.get(queue_limit(want.queue))
        self._queue_room = self._room(self._queue_limit)
        self._track_rooms: dict[str, Room] = {}
        self.next_times: list[Instant] = []

    def claim(self) -> list[ClaimedJob]:
        """Claim in order of priority, due time and key, over all tracks that have room."""
        claimed: list[ClaimedJob] = []
        while len(claimed) < self._wanted:
            start = len(claimed) < self._free
            row = self._first(may_prefetch=not start)
            if row is None:
                break
            if row.expired(self._now):
                transitions.cancel(self._tables, row, Event.EXPIRE, self._now, claims.EXPIRED)
                continue
            limit = self._tables.limits.get(task_limit(row.job.kind))
            if row.track is None and limit is not None and limit.tracked:
                self._move_to_track(row)
                continue
            self._spend(row, limit)
            job = claims.claim(
                self._tables,
                row,
                self._request.owner,
                self._request.number,
                start=start,
                now=self._now,
            )
            claimed.append(mark_exclusive(job, self._tables.limits))
        if len(claimed) < self._wanted:
            self._collect_next_times()
        return claimed

    def _first(self, *, may_prefetch: bool) -> Row | None:
        """The first pending job of all tracks that have room."""
        if self._queue_room.left <= 0 or (may_prefetch and not self._queue_room.may_prefetch):
            return None
        index, want = self._tables.index, self._want
        heads: list[Row] = []
        for track in (None, *index.tracks(want.queue)):
            if track is not None:
                room = self._track_room(track)
                if room.left <= 0 or (may_prefetch and not room.may_prefetch):
                    continue
            head = index.first_pending(want.queue, want.kinds, track)
            if head is not None:
                heads.append(head)
        return min(heads, key=lambda row: (row.priority, row.run_at, row.key), default=None)

    def _track_room(self, track: str) -> Room:
        found = self._track_rooms.get(track)
        if found is None:
            limit = self._tables.limits.get(task_limit(track))
            closed = limit is not None and self._tables.scope_until(limit, self._now) is not None
            found = self._track_rooms[track] = Room(0) if closed else self._room(limit)
        return found

    def _room(self, limit: Limit | None) -> Room:
        running = 0
        if limit is not None and limit.cap is not None:
            running = running_under(self._tables, limit.name)
        return room(limit, running, now=self._now, asked=self._wanted)

    def _move_to_track(self, row: Row) -> None:
        """Put a job on its task's track: the limit was set after the job was stored."""
        self._tables.index.remove_entries(row)
        row.track = row.job.kind
        row.stamp += 1
        self._tables.index.add(row)

    def _spend(self, row: Row, limit: Limit | None) -> None:
        self._queue_room.left -= 1
        if row.track is not None:
            self._track_room(row.track).left -= 1
        for bound in (self._queue_limit, limit):
            if bound is not None and bound.rate_per_s is not None:
                present = self._tables.limits[bound.name]
                self._tables.limits[bound.name] = spent(present, 1, self._now)

    def _collect_next_times(self) -> None:
        """Collect when the rates and scopes that keep pending jobs back allow the next start."""
        tables, queue, now = self._tables, self._want.queue, self._now
        index = tables.index
        waiting = [
            track
            for track in (None, *index.tracks(queue))
            if index.first_pending(queue, track=track) is not None
        ]
        for track in waiting:
            bounds = [tables.limits.get(queue_limit(queue))]
            if track is not None:
                bounds.append(tables.limits.get(task_limit(track)))
            times = [next_start_at(limit, now) for limit in bounds]
            times += [tables.scope_until(limit, now) for limit in bounds if limit is not None]
            known = [time for time in times if time is not None]
            if known:
                self.next_times.append(max(known))


def running_under(tables: Tables, limit: str) -> int:
    """How many running jobs a queue's or task's limit counts."""
    return sum(
        1
        for owned in tables.index.running.values()
        for key in owned
        if limit in (queue_limit(tables.jobs[key].queue), task_limit(tables.jobs[key].job.kind))
        and tables.jobs[key].status is JobStatus.RUNNING
    )
