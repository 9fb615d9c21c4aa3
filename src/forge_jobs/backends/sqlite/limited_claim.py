"""Serving wants in a store that has limits: which jobs of which line may be claimed now.

A task with limits stands on a track of its own, so that nothing of it is passed over to get at the
others; the lines are merged by priority, due time and key. See ``core.limits`` for the arithmetic.
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
from .limit_buckets import SQL
from .transitions import as_json

# A line is looked through again after jobs of limited tasks were taken out of it, so many times.
_MAX_ROUNDS: Final = 8
_Head = tuple[int, int, int, str]
_heads_of = msgspec.json.Decoder(list[_Head]).decode
_names_of = msgspec.json.Decoder(list[str]).decode


class LimitedClaim:
    """The wants of one exchange. ``gates`` are those of queues and scopes that are not open;
    ``on_track``: some job of the wanted queues stands on a track."""

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
        self._tracked = frozenset(
            limit.name.removeprefix(TASK)
            for limit in limits.values()
            if limit.tracked and limit.name.startswith(TASK)
        )

    def serve(self, owner: int, number: int, want: Want, into: claim.Claimed) -> int:
        """Claim what may be claimed for one want; how many jobs it got."""
        before = len(into.jobs)
        got = self._serve(owner, number, want, into)
        if self._capped and got:
            into.jobs[before:] = [mark_exclusive(job, self._limits) for job in into.jobs[before:]]
        return got

    def _serve(self, owner: int, number: int, want: Want, into: claim.Claimed) -> int:
        free = max(want.free, 0)
        asked = free + max(want.prefetch, 0)
        whole = self._room(self._limits.get(queue_limit(want.queue)), asked)
        if not whole.may_prefetch:
            asked = free
        asked = min(asked, whole.left)
        if asked <= 0:
            return 0
        if not self.on_track:
            least = Want(want.queue, min(free, asked), max(asked - free, 0), want.kinds)
            got = claim.claim(self._tx, owner, number, least, into, apart=self._tracked)
            if got >= 0:
                self._spend(want.queue, {}, got)
                return got
            self.on_track = True
        plain = self._plain(want, asked)
        tracks = self._tracks(want)
        chosen, kinds = self._choose(want, plain, tracks, free, asked)
        if chosen:
            claim.claim_chosen(self._tx, owner, number, want, chosen, into)
            self._spend(want.queue, kinds, len(chosen))
        return len(chosen)

    def openings(self, queue: str) -> list[Instant]:
        """When rates and scopes that hold jobs of a queue back now will let them go."""
        tx, now = self._tx, self._tx.now
        lines: list[str | None] = []
        if self.on_track:
            lines += _names_of(tx.row(SQL["tracks"], (queue,))[0])
        if self._heads(Want(queue, 1), 1):
            lines.append(None)
        found: list[Instant] = []
        for line in lines:
            bounds = [self._limits.get(queue_limit(queue))]
            if line is not None:
                bounds.append(self._limits.get(task_limit(line)))
            times = [next_start_at(limit, now) for limit in bounds]
            times += [self._scope_until(limit) for limit in bounds if limit is not None]
            known = [time for time in times if time is not None]
            if known:
                found.append(max(known))
        return found

    # ---------------------------------------------------------------- lines

    def _plain(self, want: Want, asked: int) -> list[_Head]:
        """The head of the queue's own line, without jobs that belong on a track."""
        heads = self._heads(want, asked)
        for _ in range(_MAX_ROUNDS):
            if not any(kind in self._tracked for *_, kind in heads):
                return heads
            self._tx.execute(SQL["put_on_track"], (want.queue, as_json(sorted(self._tracked))))
            heads = self._heads(want, asked)
        return [head for head in heads if head[3] not in self._tracked]

    def _heads(self, want: Want, most: int) -> list[_Head]:
        only = as_json(want.kinds) if want.kinds else None
        (found,) = self._tx.row(SQL["heads"], (want.queue, self._tx.now, most, only))
        return _heads_of(found)

    def _tracks(self, want: Want) -> list[str]:
        tracks = _names_of(self._tx.row(SQL["tracks"], (want.queue,))[0])
        return [track for track in tracks if not want.kinds or track in want.kinds]

    def _choose(
        self, want: Want, plain: Sequence[_Head], tracks: Sequence[str], free: int, asked: int
    ) -> tuple[list[int], dict[str, int]]:
        """The first jobs of all lines that have room, and how many of each task."""
        merged = [(head, Room()) for head in plain]
        for track in tracks:
            bound = self._track_room(track, asked)
            most = min(bound.left, asked)
            if most > 0:
                values = (want.queue, track, self._tx.now, most)
                (found,) = self._tx.row(SQL["track_heads"], values)
                merged += [(head, bound) for head in _heads_of(found)]
        merged.sort(key=lambda entry: entry[0][:3])
        chosen: list[int] = []
        kinds: dict[str, int] = {}
        for (_, _, key, kind), bound in merged:
            if len(chosen) >= asked:
                break
            if bound.left <= 0 or (len(chosen) >= free and not bound.may_prefetch):
                continue
            bound.left -= 1
            chosen.append(key)
            kinds[kind] = kinds.get(kind, 0) + 1
        return chosen, kinds

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

    def _spend(self, queue: str, kinds: Mapping[str, int], claimed: int) -> None:
        """Take the starts of what was claimed."""
        starts = {queue_limit(queue): claimed}
        starts.update((task_limit(kind), count) for kind, count in kinds.items())
        for name, count in starts.items():
            limit = self._limits.get(name)
            if count and limit is not None and limit.rate_per_s is not None:
                left = self._limits[name] = spent(limit, count, self._tx.now)
                self._tx.execute(SQL["spend"], (name, left.tokens, left.at))


def running_under(tx: Tx, name: str) -> int:
    """How many running jobs a queue's or task's limit counts."""
    sort, _, subject = name.partition(":")
    statement = "running_of_queue" if sort == "queue" else "running_of_kind"
    return tx.row(SQL[statement], (subject,))[0]
