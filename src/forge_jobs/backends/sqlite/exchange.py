"""The hot call: finish, release, mark as started, and claim, in one transaction.

A typical exchange is eight statements whatever its size. Their number is what costs: each statement
releases the interpreter lock and may wait for a busy event loop to get it back.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from forge_jobs.backends.shared.rowwise import events, finish, steps
from forge_jobs.core.decide import Finish
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Claim
from forge_jobs.core.limits import Limit, queue_limit, scope_gate, task_limit
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.throttle import Gate
from forge_jobs.store.jobs import Exchange, Exchanged, StepAnswer, Verdict, Want

from . import claim, limited_claim, promotion, short_finish
from .io.operation import RunAlone
from .io.transaction import Tx
from .json_text import as_json, read_keys
from .limit_buckets import StoredLimit
from .rows import Row
from .short_finish import SQL

_SNAPSHOT: Final = SQL["snapshot"]
_CANCELS: Final = SQL["cancels"]
_MARK_STARTED: Final = SQL["mark_started"]
_DUES: Final = SQL["dues"]
_OCCUPIED: Final = SQL["occupied_queues"]
MAX_PROMOTED: Final = 1_000
# From this many wanted queues on, one statement finds those that have jobs: a claim in an empty
# queue costs 20 µs.
_MANY_QUEUES: Final = 16
_names_of = msgspec.json.Decoder(list[str]).decode
_gates_of = msgspec.json.Decoder(list[tuple[str, int | None, int]]).decode
_limits_of = msgspec.json.Decoder(list[StoredLimit]).decode
_dues_of = msgspec.json.Decoder(list[int | None]).decode

# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_DEAD, _RUNNING, _DONE_EVENT = JobStatus.DEAD, JobStatus.RUNNING, Event.DONE
_NO_STEPS: Final[tuple[Sequence[StepAnswer], Sequence[StepAnswer]]] = ((), ())


class ExchangeOperation:
    """One exchange as an operation of the writer.

    ``is_alive`` tells whether a process runs and its lease has not expired. ``slow_keys`` are the
    claims of this store whose finish cannot take the short path; updated after the commit.
    """

    def __init__(
        self,
        request: Exchange,
        *,
        is_alive: Callable[[int, str, Instant], bool],
        slow_keys: set[int],
    ) -> None:
        finish.check(request.finish)
        self._request = request
        self._is_alive = is_alive
        self._slow_keys = slow_keys
        self._row_by_row = False
        self._queues = as_json([want.queue for want in request.want])

    @property
    def durable(self) -> bool:
        """Whether it must be on disk before the call returns: it may store a successor or a step.
        What else stores a step, an event for example, is run again if it has to be."""
        request = self._request
        return bool(request.steps) or any(
            item.jobs or item.status is _DEAD or item.steps is not None for item in request.finish
        )

    def __call__(self, tx: Tx) -> Exchanged:
        request = self._request
        owner = request.owner
        (
            host, version, ingested, top_key, cancels, paused, gates, dues, limited, on_track,
            any_open_event,
        ) = tx.row(_SNAPSHOT, (owner, self._queues))  # fmt: skip
        tx.set_key_marks(ingested, top_key)
        tx.ingest()
        cancel_keys = set(read_keys(cancels)) if cancels != "[]" else set[int]()
        answers, checks = _NO_STEPS
        if request.steps or request.waits:
            answers, checks = steps.exchange(tx, request)
        verdicts, dues_changed = self._write_finishes(tx, cancel_keys)
        resumed = events.deliver(tx, events.MAX_RESUMED) if any_open_event else 0
        promoted = (bool(tx.touched_buckets) and self._promote_due(tx)) or resumed > 0
        if promoted:
            dues_changed = True
        tx.admit_held()
        limits = None
        # Promoted jobs may be on a track that the snapshot did not have.
        if limited != "[]" or on_track or promoted:
            limits = {limit.name: limit for limit in _limits_of(limited)}
        if gates != "[]":
            for name in _gates_to_ease(request.finish, verdicts, limits):
                finish.ease_gate(tx, name)
        alive = host is not None and self._is_alive(owner, host, tx.now)
        claimed, next_due = claim.Claimed(), None
        if alive and request.want:
            current_gates = self._current_gates(tx, gates)
            limited_claims = None
            if limits is not None:
                # Jobs that were released or admitted above may be on a track now.
                tracked = bool(on_track) or dues_changed
                limited_claims = limited_claim.LimitedClaim(
                    tx, limits, current_gates, on_track=tracked
                )
            due_times = [None] * len(request.want) if dues_changed else _dues_of(dues)
            closed = set(_names_of(paused)) if paused != "[]" else set[str]()
            next_due = self._serve(
                tx, claimed, closed, current_gates, due_times, dues_changed, limited_claims
            )
        if limits is not None and any(limit.cap is not None for limit in limits.values()):
            _notify_freed_slots(tx, request.finish, limits, claimed)
        if claimed.slow_finish or self._slow_keys:
            tx.after_commit.append(lambda: self._update_slow_keys(claimed.slow_finish))
        if cancel_keys and dues_changed:
            # Some of them may have ended; a stale finish has not ended its job.
            cancel_keys = set(read_keys(tx.row(_CANCELS, (owner,))[0]))
        return Exchanged(
            now=tx.now,
            alive=alive,
            control_version=version,
            verdicts=verdicts,
            claims=claimed.jobs,
            cancels=sorted(cancel_keys),
            next_due=next_due,
            steps=answers,
            waits=checks,
        )

    # ---------------------------------------------------------------- finishes

    def _write_finishes(self, tx: Tx, cancel_keys: set[int]) -> tuple[Sequence[Verdict], bool]:
        """Write notes, finishes, releases and started marks. Returns the verdicts, and whether
        due times may have changed."""
        request = self._request
        finishes, slow_keys = request.finish, self._slow_keys
        short: list[Finish] = []
        slow: list[Finish] = []
        if self._row_by_row:
            slow = list(finishes)
        else:
            excluded = slow_keys | cancel_keys if cancel_keys else slow_keys
            if request.notes or request.release:
                noted = [note.claim for note in request.notes]
                excluded = excluded.union(held.key for held in (*noted, *request.release))
            for item in finishes:
                if (
                    item.event is _DONE_EVENT
                    and not item.jobs
                    and item.steps is None
                    and item.key not in excluded
                ):
                    short.append(item)
                else:
                    slow.append(item)
        if short and slow and len({item.key for item in finishes}) < len(finishes):
            # One job finished twice in one exchange: the second finish must see the first.
            short, slow = [], list(finishes)
        rows, touched = self._load(tx, slow), dict[int, Row]()
        for note in request.notes:
            row = finish.claimed_row(rows, request.owner, note.claim)
            if row is not None:
                finish.write_note(tx, row, note)
                touched[row.key] = row
        if short:
            try:
                short_finish.finish_done(tx, request.owner, short, timed=request.timed)
            except RunAlone:
                self._row_by_row = True
                raise
        verdicts: Sequence[Verdict] = [Verdict.APPLIED] * len(finishes)
        if slow:
            verdicts = self._finish_rows(tx, slow, rows, touched)
        held = [finish.claimed_row(rows, request.owner, released) for released in request.release]
        released_rows = [row for row in held if row is not None]
        if released_rows:
            steps.mark_found(tx, released_rows)
        for row in released_rows:
            # A job that is released twice in one exchange is released once.
            if row.status is _RUNNING:
                finish.release(tx, row)
                touched[row.key] = row
        tx.store(list(touched.values()))
        self._mark_started(tx)
        return verdicts, bool(slow or request.release)

    def _finish_rows(
        self, tx: Tx, slow: Sequence[Finish], rows: dict[int, Row], touched: dict[int, Row]
    ) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for item in slow:
            row = rows.get(item.key)
            verdicts.append(
                finish.finish_row(tx, self._request.owner, item, row, timed=self._request.timed)
            )
            if row is not None and verdicts[-1] is Verdict.APPLIED:
                touched[row.key] = row
        if len(verdicts) == len(self._request.finish):
            return verdicts
        verdict_of = dict(zip((item.key for item in slow), verdicts, strict=True))
        return [verdict_of.get(item.key, Verdict.APPLIED) for item in self._request.finish]

    def _load(self, tx: Tx, slow: Sequence[Finish]) -> dict[int, Row]:
        request = self._request
        wanted = [item.key for item in slow]
        wanted += [released.key for released in request.release]
        wanted += [note.claim.key for note in request.notes]
        return tx.load(dict.fromkeys(wanted)) if wanted else {}

    def _mark_started(self, tx: Tx) -> None:
        epochs: dict[int, list[int]] = {}
        slow: list[Claim] = []
        for held in self._request.started:
            if held.key in self._slow_keys or self._row_by_row:
                slow.append(held)
            else:
                epochs.setdefault(held.epoch, []).append(held.key)
        for epoch, keys in epochs.items():
            tx.execute(_MARK_STARTED, (tx.now, as_json(keys), epoch, self._request.owner))
        if slow:
            rows = tx.load([held.key for held in slow])
            claimed = [finish.claimed_row(rows, self._request.owner, held) for held in slow]
            started = [row for row in claimed if row is not None]
            for row in started:
                finish.start(tx, row, tx.now)
            tx.store(started)

    # ---------------------------------------------------------------- claims

    def _promote_due(self, tx: Tx) -> bool:
        """Promote the due jobs of the wanted queues before held ones are admitted: they keep their
        turn in their lanes. Returns whether there were any."""
        promoted = 0
        for want in self._request.want:
            due = claim.next_due(tx, want.queue)
            if due is not None and due <= tx.now:
                promoted += promotion.promote(tx, want.queue, MAX_PROMOTED)
        return promoted > 0

    def _serve(
        self,
        tx: Tx,
        claimed: claim.Claimed,
        paused: set[str],
        gates: dict[str, Gate],
        dues: Sequence[Instant | None],
        dues_changed: bool,
        limits: limited_claim.LimitedClaim | None,
    ) -> Instant | None:
        request, next_starts = self._request, list[Instant]()
        occupied: Collection[str] | None = None
        if len(request.want) > _MANY_QUEUES:
            occupied = frozenset(_names_of(tx.row(_OCCUPIED, (self._queues,))[0]))
            if dues_changed:
                dues, dues_changed = _dues_of(tx.row(_DUES, (self._queues,))[0]), False
        for want, due in zip(request.want, dues, strict=True):
            if dues_changed:
                due = claim.next_due(tx, want.queue)
            if due is not None and due <= tx.now:
                # It may admit jobs of other queues as well.
                occupied = None
                promotion.promote(tx, want.queue, MAX_PROMOTED)
                tx.admit_held()
                if limits is None:
                    limits = limited_claim.LimitedClaim(tx, {}, gates, on_track=True)
                limits.on_track = True
                due = claim.next_due(tx, want.queue)
            if want.queue in paused:
                continue
            gate = gates.get(want.queue)
            if gate is not None and gate.until is not None and gate.closed(tx.now):
                next_starts.extend(_gate_opening(tx, want, due, gate.until))
                continue
            asked = max(want.free, 0) + max(want.prefetch, 0)
            if occupied is not None and want.queue not in occupied:
                got = 0
            elif limits is None:
                got = claim.claim(tx, request.owner, request.number, want, claimed)
            else:
                got = limits.serve(request.owner, request.number, want, claimed)
                if got < asked:
                    next_starts.extend(limits.next_starts(want.queue))
            if due is not None and got < asked:
                next_starts.append(due)
        return min(next_starts, default=None)

    def _current_gates(self, tx: Tx, found: str) -> dict[str, Gate]:
        """The gates after the finishes, which may have changed what the snapshot read."""
        gates = {queue: Gate(until, count) for queue, until, count in _gates_of(found)}
        for name in {finish.gate_of(item) for item in self._request.finish if _is_throttle(item)}:
            gates[name] = tx.gate(name)
        return gates

    def _update_slow_keys(self, added: Sequence[int]) -> None:
        self._slow_keys.difference_update(item.key for item in self._request.finish)
        self._slow_keys.difference_update(released.key for released in self._request.release)
        self._slow_keys.update(added)


def _is_throttle(item: Finish) -> bool:
    return item.event is Event.THROTTLE


def _gates_to_ease(
    finishes: Sequence[Finish], verdicts: Sequence[Verdict], limits: Mapping[str, Limit] | None
) -> set[str]:
    """The gates to ease after successes: those of their queues and of their tasks' scopes."""
    done = [
        item
        for item, verdict in zip(finishes, verdicts, strict=True)
        if item.event is _DONE_EVENT and verdict is Verdict.APPLIED
    ]
    names = {item.queue for item in done}
    for kind in {item.kind for item in done} if limits is not None else ():
        limit = None if limits is None else limits.get(task_limit(kind))
        names.update(scope_gate(scope) for scope in (() if limit is None else limit.scopes))
    return names


def _notify_freed_slots(
    tx: Tx, finishes: Sequence[Finish], limits: Mapping[str, Limit], claimed: claim.Claimed
) -> None:
    """Notify other processes of slots that finishes under a concurrency limit freed, unless the
    claims of this exchange took them."""
    freed: dict[str, int] = {}
    for item in finishes:
        bounds = (limits.get(queue_limit(item.queue)), limits.get(task_limit(item.kind)))
        if any(limit is not None and limit.cap is not None for limit in bounds):
            freed[item.queue] = freed.get(item.queue, 0) + 1
    for queue, jobs in freed.items():
        if jobs > sum(job.queue == queue for job in claimed.jobs):
            tx.notify_queues.add(queue)


def _gate_opening(tx: Tx, want: Want, due: Instant | None, until: Instant) -> list[Instant]:
    """When a queue whose gate is closed may have a job to claim."""
    if max(want.free, 0) + max(want.prefetch, 0) == 0:
        return []
    if tx.row(SQL["any_pending"], (want.queue,))[0]:
        return [until]
    return [] if due is None else [max(due, until)]
