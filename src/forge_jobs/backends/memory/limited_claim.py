"""Serving one want: the jobs in line, as far as the limits of their queue and tasks allow."""

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
    """One want. ``openings`` are the times at which a rate or a scope lets more jobs start."""

    def __init__(self, tables: Tables, request: Exchange, want: Want, now: Instant) -> None:
        self._tables = tables
        self._request = request
        self._want = want
        self._now = now
        self._free = max(want.free, 0)
        self._asked = self._free + max(want.prefetch, 0)
        self._queue_limit = tables.limits.get(queue_limit(want.queue))
        self._whole = self._room(self._queue_limit)
        self._rooms: dict[str, Room] = {}
        self.openings: list[Instant] = []

    def claim(self) -> list[ClaimedJob]:
        """Claim in order of priority, due time and key over all lines that have room."""
        claimed: list[ClaimedJob] = []
        while len(claimed) < self._asked:
            start = len(claimed) < self._free
            row = self._first(may_prefetch=not start)
            if row is None:
                break
            if row.expired(self._now):
                transitions.cancel(self._tables, row, Event.EXPIRE, self._now, claims.EXPIRED)
                continue
            limit = self._tables.limits.get(task_limit(row.job.kind))
            if row.track is None and limit is not None and limit.tracked:
                self._put_on_track(row)
                continue
            self._count(row, limit)
            job = claims.claim(
                self._tables,
                row,
                self._request.owner,
                self._request.number,
                start=start,
                now=self._now,
            )
            claimed.append(mark_exclusive(job, self._tables.limits))
        if len(claimed) < self._asked:
            self._look()
        return claimed

    def _first(self, *, may_prefetch: bool) -> Row | None:
        """The first job of all lines that have room."""
        if self._whole.left <= 0 or (may_prefetch and not self._whole.may_prefetch):
            return None
        lines, want = self._tables.lines, self._want
        heads: list[Row] = []
        for track in (None, *lines.tracks(want.queue)):
            if track is not None:
                room = self._of(track)
                if room.left <= 0 or (may_prefetch and not room.may_prefetch):
                    continue
            head = lines.first_pending(want.queue, want.kinds, track)
            if head is not None:
                heads.append(head)
        return min(heads, key=lambda row: (row.priority, row.run_at, row.key), default=None)

    def _of(self, track: str) -> Room:
        found = self._rooms.get(track)
        if found is None:
            limit = self._tables.limits.get(task_limit(track))
            closed = limit is not None and self._tables.scope_until(limit, self._now) is not None
            found = self._rooms[track] = Room(0) if closed else self._room(limit)
        return found

    def _room(self, limit: Limit | None) -> Room:
        running = 0
        if limit is not None and limit.cap is not None:
            running = running_under(self._tables, limit.name)
        return room(limit, running, now=self._now, asked=self._asked)

    def _put_on_track(self, row: Row) -> None:
        """A limit was set after the job was stored; it moves to the line that is measured out."""
        self._tables.lines.withdraw(row)
        row.track = row.job.kind
        row.stamp += 1
        self._tables.lines.place(row)

    def _count(self, row: Row, limit: Limit | None) -> None:
        self._whole.left -= 1
        if row.track is not None:
            self._of(row.track).left -= 1
        for bound in (self._queue_limit, limit):
            if bound is not None and bound.rate_per_s is not None:
                present = self._tables.limits[bound.name]
                self._tables.limits[bound.name] = spent(present, 1, self._now)

    def _look(self) -> None:
        """When rates and scopes that hold jobs back now will let them go."""
        tables, queue, now = self._tables, self._want.queue, self._now
        lines = tables.lines
        waiting = [
            track
            for track in (None, *lines.tracks(queue))
            if lines.first_pending(queue, track=track) is not None
        ]
        for track in waiting:
            bounds = [tables.limits.get(queue_limit(queue))]
            if track is not None:
                bounds.append(tables.limits.get(task_limit(track)))
            times = [next_start_at(limit, now) for limit in bounds]
            times += [tables.scope_until(limit, now) for limit in bounds if limit is not None]
            known = [time for time in times if time is not None]
            if known:
                self.openings.append(max(known))


def running_under(tables: Tables, limit: str) -> int:
    """How many running jobs a queue's or task's limit counts."""
    return sum(
        1
        for owned in tables.lines.running.values()
        for key in owned
        if limit in (queue_limit(tables.jobs[key].queue), task_limit(tables.jobs[key].job.kind))
        and tables.jobs[key].status is JobStatus.RUNNING
    )
