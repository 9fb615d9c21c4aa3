"""The hot call on this side: requests into arrays, rows into claims and verdicts.

One round trip when all ends are plain. Three things need more, in one transaction: jobs carried by
an end, an on_dead task for a job that died, and a throttle, whose delay depends on the gate.
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
_FEW: Final = 10
_OUTCOMES: Final = frozenset(
    (event, target)
    for event in (
        Event.DONE, Event.FAIL, Event.DIE, Event.CRASH, Event.THROTTLE, Event.SNOOZE, Event.MISSING,
    )
    for target in targets(JobStatus.RUNNING, event)
)  # fmt: skip
_key: Final = attrgetter("key")
# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_DONE, _THROTTLE = Event.DONE, Event.THROTTLE
_IS_DONE, _DEAD = JobStatus.DONE, JobStatus.DEAD


class _End(Struct, frozen=True):
    key: int
    epoch: int
    event: str
    status: str
    delay_s: float | None
    error: str | None
    ran_s: float
    waited_s: float | None


class _Head(Struct, frozen=True):
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
    """Runs rounds of worker processes."""

    def __init__(self, server: Server, bell: Notifier, enqueuer: Enqueuer) -> None:
        self._server = server
        self._bell = bell
        self._enqueuer = enqueuer
        self._sql = sql_files.statements("jobs", server.address.schema)
        self.floors = ClaimWatermarks(server.clock)
        # Whether the last search found little: then the next most likely does so too.
        self._scarce = True

    async def exchange(self, request: Exchange) -> Exchanged:
        """One round; see ``forge_jobs.store.jobs``."""
        ends = _first_of_each(request.finish)
        now = self._server.present.bind()
        woken: list[str] = []
        if _is_plain(ends):
            name, values = self._statement(request, ends)
            found = await self._server.ask(
                self._sql[name], now, request.owner, request.number, *values, limit_s=_LIMIT_S
            )
            head = _head.decode(found[-1]["head"])
            missed = head.missed
        else:

            async def work(link: Link) -> tuple[Sequence[Row], _Head, list[str]]:
                return await self._in_steps(link, request, ends, now)

            found, before, woken = await self._server.within(work, limit_s=_LIMIT_S)
            head = _head.decode(found[-1]["head"])
            missed = before.missed
            woken += before.queues or ()
        claims = _claims(found, request)
        woken += head.queues or ()
        self.floors.learn(request, claims, head.walked)
        if request.want:
            self._scarce = len(claims) <= _FEW
        self.floors.forget(woken)
        await self._bell.notify(woken)
        return Exchanged(
            now=head.now,
            alive=head.alive,
            control_version=head.control,
            verdicts=_verdicts(request.finish, ends, missed),
            claims=claims,
            cancels=head.cancels or (),
            next_due=head.next_due,
        )

    async def letters(self, link: Link, died: Sequence[int]) -> list[NewJob]:
        """The on_dead tasks of jobs that died in this transaction."""
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
        self, link: Link, request: Exchange, ends: Sequence[Finish], now: Instant | None
    ) -> tuple[Sequence[Row], _Head, list[str]]:
        """Ends first, then the jobs they bring along, then claims, which may be among those."""
        present = await link.row(self._sql["store_now"], now)
        assert present is not None
        at: Instant = present["now"]
        delays = await self._throttles(link, request.owner, ends, at)
        call = self._sql["exchange"]
        first = await link.fetch(
            call, at, request.owner, request.number, *_before(request, ends, delays), *_NO_CLAIMS
        )
        head = _head.decode(first[-1]["head"])
        missed = {(key, epoch) for key, epoch, _ in head.missed or ()}
        applied = [end for end in ends if (end.key, end.epoch) not in missed]
        jobs = [job for end in applied for job in end.jobs]
        died = [end.key for end in applied if end.status is JobStatus.DEAD]
        jobs += await self.letters(link, died)
        if jobs:
            await self._enqueuer.insert(link, jobs, at)
        found = await link.fetch(
            call, at, request.owner, request.number, *_NO_ENDS, *self._after(request)
        )
        return found, head, [job.queue for job in jobs]

    async def _throttles(
        self, link: Link, owner: int, ends: Sequence[Finish], now: Instant
    ) -> dict[int, float]:
        """Close gates as the throttles among the ends demand; how long each job has to wait."""
        hits = [
            end for end in ends if end.event is Event.THROTTLE and end.status is JobStatus.SCHEDULED
        ]
        if not hits:
            return {}
        own = await link.fetch(
            self._sql["own_throttles"], owner, [end.key for end in hits], [e.epoch for e in hits]
        )
        queues: dict[int, str] = {row["id"]: row["queue"] for row in own}
        named = {end.key: scope_gate(end.scope) for end in hits if end.scope is not None}
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
        for end in hits:
            queue = queues.get(end.key)
            if queue is not None:
                name, curve = named.get(end.key, queue), curves[queue]
                if end.scope is not None and curve is None:
                    curve = SCOPE_CURVE
                delay_s = throttle_delay_s(gates[name], end.delay_s, curve)
                gates[name] = throttled(gates[name], now, delay_s)
                delays[end.key] = delay_s
        for queue in sorted(gates):
            gate = gates[queue]
            if gate != before[queue]:
                await link.fetch(self._sql["close_gate"], queue, gate.until, gate.count, now)
        return delays

    def _statement(self, request: Exchange, ends: Sequence[Finish]) -> tuple[str, list[Any]]:
        """Which call does it, and its arguments."""
        after = self._after(request)
        *wants, floors, kinds = after
        if self._scarce and _only_asks(request) and floors is None and kinds is None:
            return "claim_waiting", wants
        return "exchange", _before(request, ends, {}) + after

    def _after(self, request: Exchange) -> list[Any]:
        """What the claims of a round need."""
        want = request.want
        if not want:
            return list(_NO_CLAIMS)
        choosy = any(one.kinds for one in want)
        floors = {} if choosy else self.floors.of(want)
        return [
            [one.queue for one in want],
            [one.free for one in want],
            [one.prefetch for one in want],
            rows.as_json(floors) if floors else None,
            [",".join(one.kinds) or None for one in want] if choosy else None,
        ]


# The arguments of forge.exchange between the claims' own and the ends': see _before and _after.
_NO_ENDS: Final = (None,) * 20
_NO_CLAIMS: Final = (None,) * 5


def _before(request: Exchange, ends: Sequence[Finish], delays: dict[int, float]) -> list[Any]:
    """What ends, hand-backs, started marks and notes of a round need."""
    done, timed = [end for end in ends if end.event is _DONE], request.timed
    rest = () if len(done) == len(ends) else [
        _End(
            end.key, end.epoch, end.event.value, end.status.value,
            delays.get(end.key, end.delay_s),
            None if end.error is None else rows.storable(end.error), end.ran_s,
            end.waited_s if timed and end.event is not Event.MISSING else None,
        )
        for end in ends
        if end.event is not _DONE
    ]  # fmt: skip
    notes, lines = _said(request.notes)
    return [
        *(
            (
                [end.key for end in done],
                [end.epoch for end in done],
                _used([end.result for end in done]),
                [end.ran_s for end in done],
                rows.as_json([end.waited_s for end in done]) if timed else None,
                *roll_up.written(done, timed=timed),
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


def _first_of_each(finishes: Sequence[Finish]) -> list[Finish]:
    """The ends to send, by rising key: a repeat within one round is never applied."""
    plain = {end.key for end in finishes if end.event is _DONE and end.status is _IS_DONE}
    if len(plain) == len(finishes):
        return sorted(finishes, key=_key)
    seen: dict[tuple[int, int], Finish] = {}
    for end in finishes:
        if (end.event, end.status) not in _OUTCOMES:
            raise Invalid(f"a claim cannot end as {end.status} by {end.event}")
        seen.setdefault((end.key, end.epoch), end)
    return sorted(seen.values(), key=_key)


def _is_plain(ends: Sequence[Finish]) -> bool:
    return not [end for end in ends if end.jobs or end.status is _DEAD or end.event is _THROTTLE]


def _verdicts(
    finishes: Sequence[Finish],
    ends: Sequence[Finish],
    missed: Sequence[tuple[int, int, bool]] | None,
) -> list[Verdict]:
    if not missed and len(ends) == len(finishes):
        return [Verdict.APPLIED] * len(finishes)
    lost = {(key, epoch): already for key, epoch, already in missed or ()}
    seen: set[tuple[int, int]] = set()
    verdicts: list[Verdict] = []
    for end in finishes:
        claim = (end.key, end.epoch)
        if claim in lost:
            verdicts.append(Verdict.ALREADY if lost[claim] else Verdict.STALE)
        else:
            verdicts.append(Verdict.ALREADY if claim in seen else Verdict.APPLIED)
        seen.add(claim)
    return verdicts


def _claims(found: Sequence[Row], request: Exchange) -> list[ClaimedJob]:
    claims = [rows.claimed(row) for row in found[:-1]]
    if len(request.want) == 1:
        claims.sort(key=_in_line)
    else:
        place = {want.queue: n for n, want in enumerate(request.want)}
        claims.sort(key=lambda job: (place[job.queue], job.priority, job.run_at, job.key))
    return claims


def _in_line(job: ClaimedJob) -> tuple[int, int, int]:
    return (job.priority, job.run_at, job.key)


def _used(column: list[Any]) -> list[Any] | None:
    return None if column.count(None) == len(column) else column


def _only_asks(request: Exchange) -> bool:
    """Whether a process has nothing to say."""
    said = request.finish or request.release or request.started or request.notes
    return bool(request.want) and not said


def _pairs(claims: Sequence[Claim]) -> tuple[list[int] | None, list[int] | None]:
    if not claims:
        return None, None
    ordered = sorted(claims, key=_key)
    return [claim.key for claim in ordered], [claim.epoch for claim in ordered]


def _said(notes: Sequence[Note]) -> tuple[str | None, str | None]:
    """Progress by claim, the last word of each, and all lines in their order."""
    if not notes:
        return None, None
    progress: dict[tuple[int, int], dict[str, Any]] = {}
    lines: list[dict[str, Any]] = []
    for note in notes:
        key, epoch = note.claim.key, note.claim.epoch
        said = progress.setdefault((key, epoch), {"key": key, "epoch": epoch})
        if note.progress is not None:
            said["progress"] = note.progress
        if note.progress_note is not None:
            said["note"] = rows.storable(note.progress_note)
        lines += (
            {
                "key": key, "epoch": epoch, "at": line.at, "level": rows.storable(line.level),
                "message": rows.storable(line.message),
            }
            for line in note.lines
        )  # fmt: skip
    said_something = [said for said in progress.values() if len(said) > 2]
    return (
        rows.as_json(said_something) if said_something else None,
        rows.as_json(lines) if lines else None,
    )
