"""The hot call: end claims, hand back, mark started, and claim more, in one transaction.

The usual exchange is eight statements whatever its size, each of them one step: every step gives up
the interpreter lock and may wait to get it back from a busy job loop.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from forge_jobs.core.decide import Finish
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Claim
from forge_jobs.core.limits import Limit, queue_limit, scope_gate, task_limit
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.throttle import Gate
from forge_jobs.store.jobs import Exchange, Exchanged, Verdict, Want

from . import claim, finish, limited_claim, transitions
from .finish import SQL
from .io.operation import Again
from .io.transaction import Tx
from .limit_buckets import StoredLimit
from .rows import Row
from .transitions import as_json

_LOOK: Final = SQL["look"]
_STARTED: Final = SQL["started"]
MAX_PROMOTED: Final = 1_000
_names_of = msgspec.json.Decoder(list[str]).decode
_gates_of = msgspec.json.Decoder(list[tuple[str, int | None, int]]).decode
_limits_of = msgspec.json.Decoder(list[StoredLimit]).decode
_dues_of = msgspec.json.Decoder(list[int | None]).decode

# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_DEAD, _DONE_EVENT = JobStatus.DEAD, Event.DONE


class ExchangeOperation:
    """One exchange on its way into a transaction.

    ``lives`` says whether the process behind a host id still has its lease. ``unusual`` is the
    store's memory of claims whose end needs more than a done mark; it is changed after the commit.
    """

    def __init__(
        self,
        request: Exchange,
        *,
        lives: Callable[[int, str, Instant], bool],
        unusual: set[int],
    ) -> None:
        finish.check(request.finish)
        self._request = request
        self._lives = lives
        self._unusual = unusual
        self._careful = False
        self._wanted = as_json([want.queue for want in request.want])

    @property
    def durable(self) -> bool:
        """Whether this exchange may store a job."""
        return any(end.jobs or end.status is _DEAD for end in self._request.finish)

    def __call__(self, tx: Tx) -> Exchanged:
        request = self._request
        owner = request.owner
        host, version, folded, top, cancels, paused, gates, dues, limited, on_track = tx.row(
            _LOOK, (owner, self._wanted)
        )
        tx.seen(folded, top)
        tx.roll_up()
        asked = set(transitions.read_keys(cancels)) if cancels != "[]" else set[int]()
        verdicts, moved = self._end(tx, asked)
        tx.settle()
        limits = None
        if limited != "[]" or on_track:
            limits = {limit.name: limit for limit in _limits_of(limited)}
        if gates != "[]":
            for name in _eased(request.finish, limits):
                finish.ease(tx, name)
        alive = host is not None and self._lives(owner, host, tx.now)
        claimed, next_due = claim.Claimed(), None
        if alive and request.want:
            # Ends of this exchange may have changed what was read before them.
            held = {queue: Gate(until, count) for queue, until, count in _gates_of(gates)}
            for name in {finish.gate_of(end) for end in request.finish if _throttles(end)}:
                held[name] = finish.read_gate(tx, name)
            limits_here = None
            if limits is not None:
                # What has ended or come due here may have put others on a track.
                seen = bool(on_track) or moved
                limits_here = limited_claim.LimitedClaim(tx, limits, held, on_track=seen)
            lately = [None] * len(request.want) if moved else _dues_of(dues)
            closed = set(_names_of(paused)) if paused != "[]" else set[str]()
            next_due = self._serve(tx, claimed, closed, held, lately, moved, limits_here)
        if limits is not None and any(limit.cap is not None for limit in limits.values()):
            _wake_for_room(tx, request.finish, limits, claimed)
        if claimed.at_end or self._unusual:
            gone = [end.key for end in request.finish] + [back.key for back in request.release]
            tx.afterwards.append(lambda: self._remember(claimed.at_end, gone))
        if asked:
            ended = {end.key for end in request.finish} | {back.key for back in request.release}
            asked -= ended
        return Exchanged(
            now=tx.now,
            alive=alive,
            control_version=version,
            verdicts=verdicts,
            claims=claimed.jobs,
            cancels=sorted(asked),
            next_due=next_due,
        )

    # ---------------------------------------------------------------- ends

    def _end(self, tx: Tx, asked: set[int]) -> tuple[Sequence[Verdict], bool]:
        """Notes, finishes, releases and started marks; whether rows may have become due later."""
        request = self._request
        ends, unusual = request.finish, self._unusual
        quick: list[Finish] = []
        slow: list[Finish] = []
        if self._careful:
            slow = list(ends)
        else:
            apart = unusual | asked if asked else unusual
            if request.notes or request.release:
                also = [said.claim for said in request.notes]
                apart = apart.union(held.key for held in (*also, *request.release))
            for end in ends:
                if end.event is _DONE_EVENT and not end.jobs and end.key not in apart:
                    quick.append(end)
                else:
                    slow.append(end)
        if quick and slow and len({end.key for end in ends}) < len(ends):
            # One job ended twice in one round: the first end must be seen by the second.
            quick, slow = [], list(ends)
        rows, touched = self._load(tx, slow), dict[int, Row]()
        for said in request.notes:
            row = finish.mine(rows, request.owner, said.claim)
            if row is not None:
                finish.note(tx, row, said)
                touched[row.key] = row
        if quick:
            try:
                finish.done(tx, request.owner, quick, timed=request.timed)
            except Again:
                self._careful = True
                raise
        verdicts: Sequence[Verdict] = [Verdict.APPLIED] * len(ends)
        if slow:
            verdicts = self._end_slowly(tx, slow, rows, touched)
        for back in request.release:
            row = finish.mine(rows, request.owner, back)
            if row is not None:
                finish.release(tx, row)
                touched[row.key] = row
        transitions.store(tx, list(touched.values()))
        self._mark_started(tx)
        return verdicts, bool(slow or request.release)

    def _end_slowly(
        self, tx: Tx, slow: Sequence[Finish], rows: dict[int, Row], touched: dict[int, Row]
    ) -> list[Verdict]:
        told: list[Verdict] = []
        for end in slow:
            row = rows.get(end.key)
            told.append(finish.finish(tx, self._request.owner, end, row, timed=self._request.timed))
            if row is not None and told[-1] is Verdict.APPLIED:
                touched[row.key] = row
        if len(told) == len(self._request.finish):
            return told
        verdict_of = dict(zip((end.key for end in slow), told, strict=True))
        return [verdict_of.get(end.key, Verdict.APPLIED) for end in self._request.finish]

    def _load(self, tx: Tx, slow: Sequence[Finish]) -> dict[int, Row]:
        request = self._request
        wanted = [end.key for end in slow]
        wanted += [back.key for back in request.release]
        wanted += [said.claim.key for said in request.notes]
        return transitions.load(tx, dict.fromkeys(wanted)) if wanted else {}

    def _mark_started(self, tx: Tx) -> None:
        epochs: dict[int, list[int]] = {}
        unusual: list[Claim] = []
        for held in self._request.started:
            if held.key in self._unusual or self._careful:
                unusual.append(held)
            else:
                epochs.setdefault(held.epoch, []).append(held.key)
        for epoch, keys in epochs.items():
            tx.execute(_STARTED, (tx.now, as_json(keys), epoch, self._request.owner))
        if unusual:
            rows = transitions.load(tx, [held.key for held in unusual])
            mine = [finish.mine(rows, self._request.owner, held) for held in unusual]
            begun = [row for row in mine if row is not None]
            for row in begun:
                finish.start(tx, row, tx.now)
            transitions.store(tx, begun)

    # ---------------------------------------------------------------- claims

    def _serve(
        self,
        tx: Tx,
        claimed: claim.Claimed,
        paused: set[str],
        gates: dict[str, Gate],
        dues: Sequence[Instant | None],
        unsure: bool,
        limits: limited_claim.LimitedClaim | None,
    ) -> Instant | None:
        request, openings = self._request, list[Instant]()
        for want, due in zip(request.want, dues, strict=True):
            if unsure:
                due = claim.next_due(tx, want.queue)
            if due is not None and due <= tx.now:
                transitions.promote(tx, want.queue, MAX_PROMOTED)
                tx.settle()
                if limits is None:
                    limits = limited_claim.LimitedClaim(tx, {}, gates, on_track=True)
                limits.on_track = True
                due = claim.next_due(tx, want.queue)
            if want.queue in paused:
                continue
            gate = gates.get(want.queue)
            if gate is not None and gate.until is not None and gate.closed(tx.now):
                openings.extend(_opening(tx, want, due, gate.until))
                continue
            asked = max(want.free, 0) + max(want.prefetch, 0)
            if limits is None:
                got = claim.claim(tx, request.owner, request.number, want, claimed)
            else:
                got = limits.serve(request.owner, request.number, want, claimed)
                if got < asked:
                    openings.extend(limits.openings(want.queue))
            if due is not None and got < asked:
                openings.append(due)
        return min(openings, default=None)

    def _remember(self, fresh: Sequence[int], gone: Sequence[int]) -> None:
        self._unusual.difference_update(gone)
        self._unusual.update(fresh)


def _throttles(end: Finish) -> bool:
    return end.event is Event.THROTTLE


def _eased(ends: Sequence[Finish], limits: Mapping[str, Limit] | None) -> set[str]:
    """The gates that successes let fade: those of their queues and of their tasks' scopes."""
    done = [end for end in ends if end.event is _DONE_EVENT]
    names = {end.queue for end in done}
    for kind in {end.kind for end in done} if limits is not None else ():
        limit = None if limits is None else limits.get(task_limit(kind))
        names.update(scope_gate(scope) for scope in (() if limit is None else limit.scopes))
    return names


def _wake_for_room(
    tx: Tx, ends: Sequence[Finish], limits: Mapping[str, Limit], claimed: claim.Claimed
) -> None:
    """Ends under a cap made room: if this process did not use it up, others may."""
    freed: dict[str, int] = {}
    for end in ends:
        bounds = (limits.get(queue_limit(end.queue)), limits.get(task_limit(end.kind)))
        if any(limit is not None and limit.cap is not None for limit in bounds):
            freed[end.queue] = freed.get(end.queue, 0) + 1
    for queue, jobs in freed.items():
        if jobs > sum(job.queue == queue for job in claimed.jobs):
            tx.woken.add(queue)


def _opening(tx: Tx, want: Want, due: Instant | None, until: Instant) -> list[Instant]:
    """When a queue whose gate is closed may have something for a worker."""
    if max(want.free, 0) + max(want.prefetch, 0) == 0:
        return []
    if tx.row(SQL["any_pending"], (want.queue,))[0]:
        return [until]
    return [] if due is None else [max(due, until)]
