"""Claims the jobs of one want, as far as the limits of their queue and tasks allow."""

from msgspec import structs

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
from forge_jobs.core.status import Attempts, Event, JobStatus
from forge_jobs.store.jobs import Exchange, Want

from . import finish, steps, transitions
from .rows import Row
from .tables import Tables
from .transaction import Transaction


class LimitedClaim:
    """The claim for one want. ``next_times`` are when a rate or a scope lets more jobs start."""

    def __init__(self, tx: Transaction, request: Exchange, want: Want) -> None:
        self._tx = tx
        self._tables = tx.tables
        self._request = request
        self._want = want
        self._free = max(want.free, 0)
        self._wanted = self._free + max(want.prefetch, 0)
        self._queue_limit = tx.tables.limits.get(queue_limit(want.queue))
        self._queue_room = self._room(self._queue_limit)
        self._track_rooms: dict[str, Room] = {}
        self.next_times: list[Instant] = []

    def claim(self) -> list[ClaimedJob]:
        """Claim in order of priority, due time and key, over all tracks that have room."""
        claimed: list[ClaimedJob] = []
        while len(claimed) < self._wanted:
            start = len(claimed) < self._free
            row = self._first(prefetching=not start)
            if row is None:
                break
            if row.expired(self._tx.now):
                transitions.expire(self._tx, [row])
                continue
            limit = self._tables.limits.get(task_limit(row.kind))
            if row.track is None and limit is not None and limit.tracked:
                # The limit was set after the job was stored.
                row.track = row.kind
                self._tx.store([row])
                continue
            self._spend(row, limit)
            job = self._claim(row, start=start)
            claimed.append(mark_exclusive(job, self._tables.limits))
        if len(claimed) < self._wanted:
            self._collect_next_times()
        return claimed

    def _claim(self, row: Row, *, start: bool) -> ClaimedJob:
        row.started_at = None
        row.owner, row.exchange = self._request.owner, self._request.number
        transitions.transition(self._tx, row, Event.CLAIM, JobStatus.RUNNING, Attempts.SPENT)
        if start:
            finish.start(self._tx, row, self._tx.now)
        self._tx.store([row])
        job = row.claimed()
        return structs.replace(job, steps=steps.with_claim(self._tx, row)) if row.has_steps else job

    def _first(self, *, prefetching: bool) -> Row | None:
        """The first pending job of all tracks that have room."""
        if self._queue_room.left <= 0 or (prefetching and not self._queue_room.may_prefetch):
            return None
        heads: list[Row] = []
        for track in self._tables.index.tracks(self._want.queue):
            if track:
                room = self._track_room(track)
                if room.left <= 0 or (prefetching and not room.may_prefetch):
                    continue
            head = self._head(track)
            if head is not None:
                heads.append(head)
        first = min(heads, key=lambda row: (row.job.priority, row.run_at, row.key), default=None)
        return None if first is None else self._tx.load([first.key])[first.key]

    def _head(self, track: str) -> Row | None:
        kinds = self._want.kinds
        for key in self._tables.index.pending(self._want.queue, track):
            row = self._tables.jobs[key]
            if not kinds or row.kind in kinds:
                return row
        return None

    def _track_room(self, track: str) -> Room:
        found = self._track_rooms.get(track)
        if found is None:
            limit = self._tables.limits.get(task_limit(track))
            closed = limit is not None and self._tables.scope_until(limit, self._tx.now) is not None
            found = self._track_rooms[track] = Room(0) if closed else self._room(limit)
        return found

    def _room(self, limit: Limit | None) -> Room:
        running = 0
        if limit is not None and limit.cap is not None:
            running = running_under(self._tables, limit.name)
        return room(limit, running, now=self._tx.now, asked=self._wanted)

    def _spend(self, row: Row, limit: Limit | None) -> None:
        self._queue_room.left -= 1
        if row.track is not None:
            self._track_room(row.track).left -= 1
        for bound in (self._queue_limit, limit):
            if bound is not None and bound.rate_per_s is not None:
                known = self._tables.limits[bound.name]
                self._tables.limits[bound.name] = spent(known, 1, self._tx.now)

    def _collect_next_times(self) -> None:
        """Collect when the rates and scopes that keep pending jobs back allow the next start."""
        tables, queue, now = self._tables, self._want.queue, self._tx.now
        for track in tables.index.tracks(queue):
            bounds = [tables.limits.get(queue_limit(queue))]
            if track:
                bounds.append(tables.limits.get(task_limit(track)))
            times = [next_start_at(limit, now) for limit in bounds]
            times += [tables.scope_until(limit, now) for limit in bounds if limit is not None]
            known = [time for time in times if time is not None]
            if known:
                self.next_times.append(max(known))


def running_under(tables: Tables, limit: str) -> int:
    """How many running jobs a queue's or task's limit counts."""
    running = (
        tables.jobs[key] for owner in tables.index.owners() for key in tables.index.running(owner)
    )
    return sum(limit in (queue_limit(row.queue), task_limit(row.kind)) for row in running)
