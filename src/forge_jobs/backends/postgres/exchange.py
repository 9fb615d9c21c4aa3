"""The hot call: encodes an exchange as arguments of a server function and decodes its reply.

It is one round trip when all finishes are plain. Three things need several statements in one
transaction: finishes with successors, jobs that died and may have an ``on_dead`` task, and
throttles, whose delay depends on the gate.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import Struct

from forge_jobs.core import dead_letter, ids
from forge_jobs.core.decide import Finish
from forge_jobs.core.errors import Invalid
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Claim, ClaimedJob, NewJob
from forge_jobs.core.limits import scope_gate
from forge_jobs.core.retry import Backoff
from forge_jobs.core.status import Event, JobStatus, targets
from forge_jobs.core.throttle import OPEN, SCOPE_CURVE, Gate, throttle_delay_s, throttled
from forge_jobs.store.jobs import Exchange, Exchanged, Note, Verdict

from . import roll_up, rows, sql_files
from .claim_watermark import ClaimWatermarks
from .connection.driver import Row
from .connection.server import Link, Server
from .enqueue import Enqueuer
from .notify.notifier import Notifier

_LIMIT_S: Final = 15.0
# A claim that returned at most this many jobs counts as small.
_SMALL_CLAIM: Final = 10
_OUTCOMES: Final = frozenset(
    (event, target)
    for event in (
        Event.DONE, Event.FAIL, Event.DIE, Event.CRASH, Event.THROTTLE, Event.SNOOZE, Event.MISSING,
    )
    for target in targets(JobStatus.RUNNING, event)
)  # fmt: skip
_key: Final = attrgetter("key")
_claim: Final = attrgetter("key", "epoch")
# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_DONE, _THROTTLE = Event.DONE, Event.THROTTLE
_IS_DONE, _DEAD = JobStatus.DONE, JobStatus.DEAD


class _OtherFinish(Struct, frozen=True, omit_defaults=True):
    """A finish that is not Done, as the server function reads it."""

    key: int
    epoch: int
    event: str
    status: str
    delay_s: float | None
    error: str | None
    ran_s: float
    waited_s: float | None
    traceback: str | None = None


class _Head(Struct, frozen=True):
    """The last row of a reply. ``missed``: finishes that were not applied, as (key, epoch, whether
    they were applied before); ``walked``: how many index entries the claim read."""

    now: Instant
    alive: bool
    control: int
    next_due: Instant | None
    cancels: list[int] | None
    missed: list[tuple[int, int, bool]] | None
    queues: list[str] | None
    walked: int


_head: Final = msgspec.json.Decoder(_Head)


class Exchanger:
    """Runs the exchanges of worker processes."""

    def __init__(self, server: Server, notifier: Notifier, enqueuer: Enqueuer) -> None:
        self._server = server
        self._notifier = notifier
        self._enqueuer = enqueuer
        self._sql = sql_files.statements("jobs", server.address.schema)
        self.watermarks = ClaimWatermarks(server.clock)
        # Whether the last claim returned few jobs: then the next one probably does too.
        self._last_was_small = True

    async def exchange(self, request: Exchange) -> Exchanged:
        """One exchange; see ``forge_jobs.store.jobs``."""
        finishes = _unique(request.finish)
        now = self._server.store_clock.bind()
        queues_to_notify: list[str] = []
        if _is_plain(finishes):
            name, values = self._statement(request, finishes)
            found = await self._server.ask(
                self._sql[name], now, request.owner, request.number, *values, limit_s=_LIMIT_S
            )
            head = _head.decode(found[-1]["head"])
            missed = head.missed
        else:

            async def work(link: Link) -> tuple[Sequence[Row], _Head, list[str]]:
                return await self._in_steps(link, request, finishes, now)

            found, before, queues_to_notify = await self._server.within(work, limit_s=_LIMIT_S)
            head = _head.decode(found[-1]["head"])
            missed = before.missed
            queues_to_notify += before.queues or ()
        claims = _claims(found, request)
        queues_to_notify += head.queues or ()
        self.watermarks.update(request, claims, head.walked)
        if request.want:
            self._last_was_small = len(claims) <= _SMALL_CLAIM
        self.watermarks.forget(queues_to_notify)
        await self._notifier.notify(queues_to_notify)
        return Exchanged(
            now=head.now,
            alive=head.alive,
            control_version=head.control,
            verdicts=_verdicts(request.finish, finishes, missed),
            claims=claims,
            cancels=head.cancels or (),
            next_due=head.next_due,
        )

    async def dead_letters(self, link: Link, died: Sequence[int]) -> list[NewJob]:
        """The ``on_dead`` jobs of jobs that died in this transaction."""
        found = await link.fetch(self._sql["dead_letters"], died) if died else ()
        jobs: list[NewJob] = []
        for row in found:
            letter = dead_letter.payload(
                job_id=ids.job_id(row["id"], row["enqueued_at"], self._enqueuer.tag),
                kind=row["kind"],
                queue=row["queue"],
                attempts=row["attempts"],
                error=row["last_error"],
                payload=row["payload"],
                enqueued_at=row["enqueued_at"],
                died_at=row["finished_at"],
            )
            on_dead = rows.successor_of(row["on_dead"])
            tags, trace = row["tags"] or (), row["trace"]
            jobs.append(dead_letter.successor(on_dead, letter, tags=tags, trace=trace))
        return jobs

    async def _in_steps(
        self, link: Link, request: Exchange, finishes: Sequence[Finish], now: Instant | None
    ) -> tuple[Sequence[Row], _Head, list[str]]:
        """Write the finishes, then their successors, then claim; successors can be claimed too."""
        row = await link.row(self._sql["store_now"], now)
        assert row is not None
        at: Instant = row["now"]
        delays = await self._throttles(link, request.owner, finishes, at)
        call = self._sql["exchange"]
        first = await link.fetch(
            call,
            at,
            request.owner,
            request.number,
            *_write_arguments(request, finishes, delays),
            *_NO_CLAIMS,
        )
        head = _head.decode(first[-1]["head"])
        missed = {(key, epoch) for key, epoch, _ in head.missed or ()}
        applied = [finish for finish in finishes if (finish.key, finish.epoch) not in missed]
        jobs = [job for finish in applied for job in finish.jobs]
        died = [finish.key for finish in applied if finish.status is JobStatus.DEAD]
        jobs += await self.dead_letters(link, died)
        if jobs:
            await self._enqueuer.insert(link, jobs, at)
        found = await link.fetch(
            call, at, request.owner, request.number, *_NO_WRITES, *self._claim_arguments(request)
        )
        return found, head, [job.queue for job in jobs]

    async def _throttles(
        self, link: Link, owner: int, finishes: Sequence[Finish], now: Instant
    ) -> dict[int, float]:
        """Close the gates of throttled finishes. Returns the delay of each job, by key."""
        hits = [
            finish
            for finish in finishes
            if finish.event is Event.THROTTLE and finish.status is JobStatus.SCHEDULED
        ]
        if not hits:
            return {}
        own = await link.fetch(
            self._sql["own_throttles"],
            owner,
            [finish.key for finish in hits],
            [finish.epoch for finish in hits],
        )
        queues: dict[int, str] = {row["id"]: row["queue"] for row in own}
        named = {
            finish.key: scope_gate(finish.scope) for finish in hits if finish.scope is not None
        }
        gates: dict[str, Gate] = {}
        curves: dict[str, Backoff | None] = {}
        wanted = sorted({*queues.values(), *(named[key] for key in queues if key in named)})
        for row in await link.fetch(self._sql["gates"], wanted):
            name = row["queue"]
            gates[name] = OPEN if row["until"] is None else Gate(row["until"], row["count"])
            curves[name] = (
                Backoff(base_s=row["backoff_base_s"], max_s=row["backoff_max_s"])
                if row["backoff_enabled"]
                else None
            )
        before, delays = dict(gates), dict[int, float]()
        for finish in hits:
            queue = queues.get(finish.key)
            if queue is not None:
                name, curve = named.get(finish.key, queue), curves[queue]
                if finish.scope is not None and curve is None:
                    curve = SCOPE_CURVE
                delay_s = throttle_delay_s(gates[name], finish.delay_s, curve)
                gates[name] = throttled(gates[name], now, delay_s)
                delays[finish.key] = delay_s
        for queue in sorted(gates):
            gate = gates[queue]
            if gate != before[queue]:
                await link.fetch(self._sql["close_gate"], queue, gate.until, gate.count, now)
        return delays

    def _statement(self, request: Exchange, finishes: Sequence[Finish]) -> tuple[str, list[Any]]:
        """The statement of a plain exchange, and its arguments."""
        claim = self._claim_arguments(request)
        *wants, watermarks, kinds = claim
        if self._last_was_small and _only_claims(request) and watermarks is None and kinds is None:
            return "claim_waiting", wants
        return "exchange", _write_arguments(request, finishes, {}) + claim

    def _claim_arguments(self, request: Exchange) -> list[Any]:
        """The arguments of the claims."""
        want = request.want
        if not want:
            return list(_NO_CLAIMS)
        by_kind = any(one.kinds for one in want)
        watermarks = {} if by_kind else self.watermarks.positions(want)
        return [
            [one.queue for one in want],
            [one.free for one in want],
            [one.prefetch for one in want],
            rows.as_json(watermarks) if watermarks else None,
            [",".join(one.kinds) or None for one in want] if by_kind else None,
        ]


# Arguments of ``forge.exchange`` for an exchange without writes, and for one without claims: see
# ``_write_arguments`` and ``_claim_arguments``.
_NO_WRITES: Final = (None,) * 20
_NO_CLAIMS: Final = (None,) * 5


def _write_arguments(
    request: Exchange, finishes: Sequence[Finish], delays: dict[int, float]
) -> list[Any]:
    """The arguments of finishes, releases, start marks and notes."""
    done, timed = [finish for finish in finishes if finish.event is _DONE], request.timed
    rest = () if len(done) == len(finishes) else [
        _OtherFinish(
            finish.key, finish.epoch, finish.event.value, finish.status.value,
            delays.get(finish.key, finish.delay_s),
            None if finish.error is None else rows.storable(finish.error), finish.ran_s,
            finish.waited_s if timed and finish.event is not Event.MISSING else None,
            None if finish.traceback is None else rows.storable(finish.traceback),
        )
        for finish in finishes
        if finish.event is not _DONE
    ]  # fmt: skip
    notes, lines = _note_arguments(request.notes)
    return [
        *(
            (
                [finish.key for finish in done],
                [finish.epoch for finish in done],
                _if_any([finish.result for finish in done]),
                [finish.ran_s for finish in done],
                rows.as_json([finish.waited_s for finish in done]) if timed else None,
                *roll_up.done_entries(done, timed=timed),
            )
            if done
            else (None,) * 13
        ),
        rows.as_json(rest) if rest else None,
        *_pairs(request.release),
        *_pairs(request.started),
        notes,
        lines,
    ]


def _unique(finishes: Sequence[Finish]) -> list[Finish]:
    """The finishes to send, in order of their keys: of repeated ones only the first."""
    plain = {
        finish.key for finish in finishes if finish.event is _DONE and finish.status is _IS_DONE
    }
    if len(plain) == len(finishes):
        return sorted(finishes, key=_key)
    seen: dict[tuple[int, int], Finish] = {}
    for finish in finishes:
        if (finish.event, finish.status) not in _OUTCOMES:
            raise Invalid(f"a claim cannot end as {finish.status} by {finish.event}")
        seen.setdefault((finish.key, finish.epoch), finish)
    return sorted(seen.values(), key=_claim)


def _is_plain(finishes: Sequence[Finish]) -> bool:
    return not [
        finish
        for finish in finishes
        if finish.jobs or finish.status is _DEAD or finish.event is _THROTTLE
    ]


def _verdicts(
    finishes: Sequence[Finish],
    unique: Sequence[Finish],
    missed: Sequence[tuple[int, int, bool]] | None,
) -> list[Verdict]:
    if not missed and len(unique) == len(finishes):
        return [Verdict.APPLIED] * len(finishes)
    not_applied = {(key, epoch): already for key, epoch, already in missed or ()}
    seen: set[tuple[int, int]] = set()
    verdicts: list[Verdict] = []
    for finish in finishes:
        claim = (finish.key, finish.epoch)
        if claim in not_applied:
            verdicts.append(Verdict.ALREADY if not_applied[claim] else Verdict.STALE)
        else:
            verdicts.append(Verdict.ALREADY if claim in seen else Verdict.APPLIED)
        seen.add(claim)
    return verdicts


def _claims(found: Sequence[Row], request: Exchange) -> list[ClaimedJob]:
    claims = [rows.claimed(row) for row in found[:-1]]
    if len(request.want) == 1:
        claims.sort(key=_claim_order)
    else:
        order = {want.queue: n for n, want in enumerate(request.want)}
        claims.sort(key=lambda job: (order[job.queue], job.priority, job.run_at, job.key))
    return claims


def _claim_order(job: ClaimedJob) -> tuple[int, int, int]:
    return (job.priority, job.run_at, job.key)


def _if_any(column: list[Any]) -> list[Any] | None:
    return None if column.count(None) == len(column) else column


def _only_claims(request: Exchange) -> bool:
    """Whether an exchange writes nothing but claims."""
    writes = request.finish or request.release or request.started or request.notes
    return bool(request.want) and not writes


def _pairs(claims: Sequence[Claim]) -> tuple[list[int] | None, list[int] | None]:
    if not claims:
        return None, None
    ordered = sorted(claims, key=_claim)
    return [claim.key for claim in ordered], [claim.epoch for claim in ordered]


def _note_arguments(notes: Sequence[Note]) -> tuple[str | None, str | None]:
    """The last progress of each claim, and all log lines in their order, as JSON."""
    if not notes:
        return None, None
    progress: dict[tuple[int, int], dict[str, Any]] = {}
    lines: list[dict[str, Any]] = []
    for note in notes:
        key, epoch = note.claim.key, note.claim.epoch
        last = progress.setdefault((key, epoch), {"key": key, "epoch": epoch})
        if note.progress is not None:
            last["progress"] = note.progress
        if note.progress_note is not None:
            last["note"] = rows.storable(note.progress_note)
        lines += (
            {
                "key": key, "epoch": epoch, "at": line.at, "level": rows.storable(line.level),
                "message": rows.storable(line.message),
            }
            for line in note.lines
        )  # fmt: skip
    changed = [last for last in progress.values() if len(last) > 2]
    return (
        rows.as_json(changed) if changed else None,
        rows.as_json(lines) if lines else None,
    )
