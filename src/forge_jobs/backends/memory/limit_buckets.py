"""Where jobs of full keys and busy lanes wait, and who may go on. It decides; ``moves`` moves.

A job in a lane takes the lane's *seat* before anything else and keeps it until it waits for a
retry or ends; a job with a limit key counts as one of the key's from pending on.
"""

from collections.abc import Mapping

from forge_jobs.core.job import LaneOrder
from forge_jobs.core.limits import UNBOUNDED, Limit, limit_of
from forge_jobs.core.status import TERMINAL, JobStatus

from .rows import Row

_GOING = (JobStatus.PENDING, JobStatus.RUNNING)


class LimitBuckets:
    """Indexes over the bound jobs alone."""

    def __init__(self) -> None:
        self._held: dict[str, dict[int, Row]] = {}
        self._going: dict[str, dict[int, Row]] = {}
        self._seats: dict[str, dict[int, Row]] = {}
        self._lanes: dict[str, dict[int, Row]] = {}

    def enter(self, row: Row) -> None:
        """A bound job stands where its present state puts it."""
        for index, name in self._places(row):
            index.setdefault(name, {})[row.key] = row

    def leave(self, row: Row) -> None:
        """It is about to move."""
        for index, name in self._places(row):
            rows = index[name]
            del rows[row.key]
            if not rows:
                del index[name]

    def names(self) -> list[str]:
        """Every lot in which a job waits, by name."""
        return sorted(self._held)

    def waiting(self, lot: str) -> list[Row]:
        """The jobs of a lot in the order in which they go on."""
        rows = self._held.get(lot, {}).values()
        return sorted(
            rows, key=lambda row: (0 if row.lane_bucket == lot else row.priority, row.key)
        )

    def taken(self, limit_key: str) -> int:
        """How many jobs of a key run or are about to."""
        return len(self._going.get(limit_key, ()))

    def going(self, limit: str) -> list[Row]:
        """Jobs of all keys of a limit that run or are about to."""
        return [
            row
            for key, rows in self._going.items()
            if limit_of(key) == limit
            for row in rows.values()
        ]

    def seated(self, lane: str) -> Row | None:
        """The job that has a lane's seat."""
        return next(iter(self._seats.get(lane, {}).values()), None)

    def first_of(self, lane: str) -> Row | None:
        """The job for which a lane waits: the one in its seat, else its oldest."""
        rows = self._lanes.get(lane, {})
        return self.seated(lane) or min(rows.values(), key=lambda row: row.key, default=None)

    def blocker(self, lane: str, row: Row) -> Row | None:
        """The job of the lane for which ``row`` has to wait."""
        seated = self.seated(lane)
        if seated is not None:
            return seated
        strict = row.job.order is LaneOrder.STRICT
        older = [
            other
            for key, other in self._lanes.get(lane, {}).items()
            if key < row.key
            and (strict or other.job.order is LaneOrder.STRICT or other.status is JobStatus.HELD)
        ]
        return min(older, key=lambda other: other.key, default=None)

    def lot_for(self, row: Row, limits: Mapping[str, Limit]) -> str | None:
        """Where a job that is due has to wait; None when it may go on."""
        lane = row.lane_bucket
        if lane is not None and self.blocker(lane, row) is not None:
            return lane
        return self._key_for(row, limits)

    def ready(self, lot: str, limits: Mapping[str, Limit], most: int) -> list[Row]:
        """The jobs of a lot that may leave it now."""
        waiting = self.waiting(lot)
        if waiting and waiting[0].lane_bucket == lot:
            return waiting[:1] if self.blocker(lot, waiting[0]) is None else []
        room = min(max_per_key(lot, limits) - self.taken(lot), most)
        return waiting[: max(room, 0)]

    def next_lot(self, row: Row, lot: str, limits: Mapping[str, Limit]) -> str | None:
        """Where a job goes that leaves ``lot``: to the lot of its key, or to pending (None)."""
        return self._key_for(row, limits) if lot == row.lane_bucket else None

    def _key_for(self, row: Row, limits: Mapping[str, Limit]) -> str | None:
        key = row.job.limit_key
        if key is None or self.taken(key) < max_per_key(key, limits):
            return None
        return key

    def _places(self, row: Row) -> list[tuple[dict[str, dict[int, Row]], str]]:
        places: list[tuple[dict[str, dict[int, Row]], str]] = []
        lane, going = row.lane_bucket, row.status in _GOING
        if row.status is JobStatus.HELD and row.lot is not None:
            places.append((self._held, row.lot))
        if going and row.job.limit_key is not None:
            places.append((self._going, row.job.limit_key))
        if lane is not None and row.status not in TERMINAL:
            places.append((self._lanes, lane))
            if going or (row.status is JobStatus.HELD and row.lot != lane):
                places.append((self._seats, lane))
        return places


def max_per_key(limit_key: str, limits: Mapping[str, Limit]) -> int:
    """How many jobs of a key may run at once."""
    limit = limits.get(limit_of(limit_key))
    if limit is None or limit.per is None or limit.concurrency is None:
        return UNBOUNDED
    return limit.concurrency
