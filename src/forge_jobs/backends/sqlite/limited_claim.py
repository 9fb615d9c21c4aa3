"""Claims in a store that has limits: which jobs of which track may be claimed now.

The jobs of a limited task are on a track of their own, so a claim of other jobs does not have to
skip them. Tracks and the rest of the queue are merged by priority, due time and key. See
``core.limits`` for the arithmetic.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from forge_jobs.core.instant import Instant
from forge_jobs.core.limits import (
    TASK,
    Limit,
    Room,
    mark_exclusive,
    next_start_at,
    queue_limit,
    room,
    scope_gate,
    spent,
    task_limit,
)
from forge_jobs.core.throttle import Gate
from forge_jobs.store.jobs import Want

from . import claim
from .io.transaction import Tx
from .json_text import as_json
from .limit_buckets import SQL

# How often the heads of a queue are read again after jobs of limited tasks moved to their tracks.
_MAX_ROUNDS: Final = 8
_Head = tuple[int, int, int, str]
_heads_of = msgspec.json.Decoder(list[_Head]).decode
_names_of = msgspec.json.Decoder(list[str]).decode


class LimitedClaim:
    """Serves the wants of one exchange. ``gates`` are the gates of queues and scopes that are not
    open; ``on_track``: a wanted queue may have a job on a track."""

    def __init__(
        self,
        tx: Tx,
        limits: Mapping[str, Limit],
        gates: Mapping[str, Gate],
        *,
        on_track: bool,
    ) -> None:
        self._tx = tx
        self.on_track = on_track
        self._capped = any(limit.cap is not None for limit in limits.values())
        self._limits = dict(limits)
        self._gates = gates
        self._tracked_kinds = frozenset(
            limit.name.removeprefix(TASK)
            for limit in limits.values()
            if limit.tracked and limit.name.startswith(TASK)
        )

    def serve(self, owner: int, number: int, want: Want, claimed: claim.Claimed) -> int:
        """Claim jobs for one want within the limits; returns how many."""
        first = len(claimed.jobs)
        got = self._serve(owner, number, want, claimed)
        if self._capped and got:
            limits = self._limits
            claimed.jobs[first:] = [mark_exclusive(job, limits) for job in claimed.jobs[first:]]
        return got

    def _serve(self, owner: int, number: int, want: Want, claimed: claim.Claimed) -> int:
        free = max(want.free, 0)
        asked = free + max(want.prefetch, 0)
        queue_room = self._room(self._limits.get(queue_limit(want.queue)), asked)
        if not queue_room.may_prefetch:
            asked = free
        asked = min(asked, queue_room.left)
        if asked <= 0:
            return 0
        if not self.on_track:
            bounded = Want(want.queue, min(free, asked), max(asked - free, 0), want.kinds)
            got = claim.claim(
                self._tx, owner, number, bounded, claimed, tracked_kinds=self._tracked_kinds
            )
            if got >= 0:
                self._take_tokens(want.queue, {}, got)
                return got
            self.on_track = True
        untracked = self._untracked_heads(want, asked)
        tracks = self._tracks(want)
        keys, kinds = self._choose(want, untracked, tracks, free, asked)
        if keys:
            claim.claim_by_keys(self._tx, owner, number, want, keys, claimed)
            self._take_tokens(want.queue, kinds, len(keys))
        return len(keys)

    def next_starts(self, queue: str) -> list[Instant]:
        """When rates and scopes that now block jobs of a queue will allow them to start."""
        tx, now = self._tx, self._tx.now
        tracks: list[str | None] = []
        if self.on_track:
            tracks += _names_of(tx.row(SQL["tracks"], (queue,))[0])
        if self._heads(Want(queue, 1), 1):
            tracks.append(None)
        found: list[Instant] = []
        for track in tracks:
            bounds = [self._limits.get(queue_limit(queue))]
            if track is not None:
                bounds.append(self._limits.get(task_limit(track)))
            times = [next_start_at(limit, now) for limit in bounds]
            times += [self._scope_until(limit) for limit in bounds if limit is not None]
            known = [time for time in times if time is not None]
            if known:
                found.append(max(known))
        return found

    # ---------------------------------------------------------------- tracks

    def _untracked_heads(self, want: Want, asked: int) -> list[_Head]:
        """The first jobs of a queue that do not belong on a track."""
        heads = self._heads(want, asked)
        for _ in range(_MAX_ROUNDS):
            if not any(kind in self._tracked_kinds for *_, kind in heads):
                return heads
            self._tx.execute(
                SQL["move_to_track"], (want.queue, as_json(sorted(self._tracked_kinds)))
            )
            heads = self._heads(want, asked)
        return [head for head in heads if head[3] not in self._tracked_kinds]

    def _heads(self, want: Want, limit: int) -> list[_Head]:
        only = as_json(want.kinds) if want.kinds else None
        (found,) = self._tx.row(SQL["queue_heads"], (want.queue, self._tx.now, limit, only))
        return _heads_of(found)

    def _tracks(self, want: Want) -> list[str]:
        tracks = _names_of(self._tx.row(SQL["tracks"], (want.queue,))[0])
        return [track for track in tracks if not want.kinds or track in want.kinds]

    def _choose(
        self, want: Want, untracked: Sequence[_Head], tracks: Sequence[str], free: int, asked: int
    ) -> tuple[list[int], dict[str, int]]:
        """The first jobs of all tracks with free slots, and how many of each task."""
        merged = [(head, Room()) for head in untracked]
        for track in tracks:
            bound = self._track_room(track, asked)
            limit = min(bound.left, asked)
            if limit > 0:
                values = (want.queue, track, self._tx.now, limit)
                (found,) = self._tx.row(SQL["track_heads"], values)
                merged += [(head, bound) for head in _heads_of(found)]
        merged.sort(key=lambda entry: entry[0][:3])
        keys: list[int] = []
        kinds: dict[str, int] = {}
        for (_, _, key, kind), bound in merged:
            if len(keys) >= asked:
                break
            if bound.left <= 0 or (len(keys) >= free and not bound.may_prefetch):
                continue
            bound.left -= 1
            keys.append(key)
            kinds[kind] = kinds.get(kind, 0) + 1
        return keys, kinds

    # ---------------------------------------------------------------- room

    def _track_room(self, track: str, asked: int) -> Room:
        limit = self._limits.get(task_limit(track))
        if limit is not None and self._scope_until(limit) is not None:
            return Room(0)
        return self._room(limit, asked)

    def _room(self, limit: Limit | None, asked: int) -> Room:
        running = 0
        if limit is not None and limit.cap is not None:
            running = running_under(self._tx, limit.name)
        return room(limit, running, now=self._tx.now, asked=asked)

    def _scope_until(self, limit: Limit) -> Instant | None:
        now = self._tx.now
        gates = [self._gates.get(scope_gate(scope)) for scope in limit.scopes]
        closed = [gate.until for gate in gates if gate is not None and gate.closed(now)]
        return max((until for until in closed if until is not None), default=None)

    def _take_tokens(self, queue: str, kinds: Mapping[str, int], claimed: int) -> None:
        """Take the tokens for the claimed jobs."""
        starts = {queue_limit(queue): claimed}
        starts.update((task_limit(kind), count) for kind, count in kinds.items())
        for name, count in starts.items():
            limit = self._limits.get(name)
            if count and limit is not None and limit.rate_per_s is not None:
                left = self._limits[name] = spent(limit, count, self._tx.now)
                self._tx.execute(SQL["set_tokens"], (name, left.tokens, left.at))


def running_under(tx: Tx, name: str) -> int:
    """How many running jobs a queue's or task's limit counts."""
    sort, _, subject = name.partition(":")
    statement = "running_of_queue" if sort == "queue" else "running_of_kind"
    return tx.row(SQL[statement], (subject,))[0]
