"""The hot call: encodes an exchange as arguments of a server function and decodes its reply.

It is one round trip when all finishes are plain. Three things need several statements in one
transaction: finishes with successors, jobs that died and may have an ``on_dead`` task, and
throttles, whose delay depends on the gate.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from forge_jobs.core import dead_letter, ids
from forge_jobs.core.decide import Finish
from forge_jobs.core.instant import NEVER, Instant
from forge_jobs.core.job import Claim, ClaimedJob, NewJob
from forge_jobs.core.limits import scope_gate
from forge_jobs.core.retry import Backoff
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.throttle import OPEN, SCOPE_CURVE, Gate, throttle_delay_s, throttled
from forge_jobs.store.jobs import Exchange, Exchanged, Verdict

from . import exchange_arguments, rows, sql_files, step_arguments
from .claim_watermark import ClaimWatermarks
from .connection.driver import Row
from .connection.server import Link, Server
from .enqueue import Enqueuer
from .exchange_arguments import NO_CLAIMS, NO_WRITES, write_arguments
from .notify.notifier import Notifier
from .step_arguments import Found, StepArguments

_LIMIT_S: Final = 15.0
# A claim that returned at most this many jobs counts as small.
_SMALL_CLAIM: Final = 10


class _Head(Struct, frozen=True):
    """The last row of a reply. ``missed``: finishes that were not applied, as (key, epoch, whether
    they were applied before); ``walked``: how many index entries the claim read; ``unmarked``:
    started marks to send again; ``steps`` and ``waits``: answers to them."""

    now: Instant
    alive: bool
    control: int
    next_due: Instant | None
    cancels: list[int] | None
    missed: list[tuple[int, int, bool]] | None
    queues: list[str] | None
    walked: int
    unmarked: list[tuple[int, int]] | None = None
    steps: Found | None = None
    waits: Found | None = None


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
        # Started marks that a user's own transaction kept from being written, by owner.
        self._unmarked: dict[int, list[Claim]] = {}

    async def exchange(self, request: Exchange) -> Exchanged:
        """One exchange; see ``forge_jobs.store.jobs``."""
        finishes = exchange_arguments.unique(request.finish)
        if self._unmarked:
            request = self._with_unmarked(request)
        steps = step_arguments.of(request, finishes)
        now = self._server.store_clock.bind()
        queues_to_notify: list[str] = []
        if exchange_arguments.is_plain(finishes):
            name, values = self._statement(request, finishes, steps, now)
            found = await self._server.ask(self._sql[name], *values, limit_s=_LIMIT_S)
            before = head = _head.decode(found[-1]["head"])
        else:

            async def work(link: Link) -> tuple[Sequence[Row], _Head, list[str]]:
                return await self._in_steps(link, request, finishes, steps, now)

            found, before, queues_to_notify = await self._server.within(work, limit_s=_LIMIT_S)
            head = _head.decode(found[-1]["head"])
            queues_to_notify += before.queues or ()
        claims = _claims(found, request)
        queues_to_notify += head.queues or ()
        if steps is not None:
            claimed = {job.key for job in claims}
            queues_to_notify += [
                finish.queue for finish in steps.pending(before.waits) if finish.key not in claimed
            ]
        if before.unmarked is not None:
            self._unmarked[request.owner] = [Claim(*claim) for claim in before.unmarked]
        self.watermarks.update(request, claims, head.walked)
        if request.want:
            self._last_was_small = len(claims) <= _SMALL_CLAIM
        self.watermarks.forget(queues_to_notify)
        await self._notifier.notify(queues_to_notify)
        return Exchanged(
            now=head.now,
            alive=head.alive,
            control_version=head.control,
            verdicts=_verdicts(request.finish, finishes, before.missed),
            claims=claims,
            cancels=head.cancels or (),
            next_due=None if head.next_due == NEVER else head.next_due,
            steps=() if steps is None else steps.step_answers(before.steps),
            waits=() if steps is None else steps.wait_answers(before.waits),
        )

    def _with_unmarked(self, request: Exchange) -> Exchange:
        """The request with the started marks that an earlier one could not write."""
        again = self._unmarked.pop(request.owner, [])
        ended = {end.key for end in request.finish} | {claim.key for claim in request.release}
        known = {*request.started}
        more = [claim for claim in again if claim.key not in ended and claim not in known]
        return structs.replace(request, started=[*request.started, *more]) if more else request

    async def dead_letters(self, link: Link, died: Sequence[int]) -> list[NewJob]:
        """The ``on_dead`` jobs of jobs that died in this transaction."""
        found = await link.fetch(self._sql["dead_letters"], died) if died else ()
        jobs: list[NewJob] = []
        for row in found:
            job_id = ids.job_id(row["id"], row["enqueued_at"], self._enqueuer.tag)
            letter = dead_letter.payload(
                job_id=job_id,
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
            jobs.append(
                dead_letter.successor(on_dead, letter, parent=job_id, tags=tags, trace=trace)
            )
        return jobs

    async def _in_steps(
        self,
        link: Link,
        request: Exchange,
        finishes: Sequence[Finish],
        steps: StepArguments | None,
        now: Instant | None,
    ) -> tuple[Sequence[Row], _Head, list[str]]:
        """Write the finishes, then their successors, then claim; successors can be claimed too."""
        if steps is not None:
            topics, ends = steps.locks
            await link.fetch(self._sql["lock_for_steps"], topics, request.owner, ends)
        row = await link.row(self._sql["store_now"], now)
        assert row is not None
        at: Instant = row["now"]
        delays = await self._throttles(link, request.owner, finishes, at)
        call = "exchange" if steps is None else "exchange_steps"
        first = await link.fetch(
            self._sql[call],
            *(() if steps is None else steps.values),
            at,
            request.owner,
            request.number,
            *write_arguments(request, finishes, delays),
            *NO_CLAIMS,
        )
        head = _head.decode(first[-1]["head"])
        missed = {(key, epoch) for key, epoch, _ in head.missed or ()}
        applied = [finish for finish in finishes if (finish.key, finish.epoch) not in missed]
        jobs = [job for finish in applied for job in finish.jobs]
        died = [finish.key for finish in applied if finish.status is JobStatus.DEAD]
        jobs += await self.dead_letters(link, died)
        if jobs:
            await self._enqueuer.insert(link, jobs, at)
        claim = self._claim_arguments(request)
        found = await link.fetch(
            self._sql["exchange"], at, request.owner, request.number, *NO_WRITES, *claim
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

    def _statement(
        self,
        request: Exchange,
        finishes: Sequence[Finish],
        steps: StepArguments | None,
        now: Instant | None,
    ) -> tuple[str, list[Any]]:
        """The statement of a plain exchange, and its arguments."""
        claim = self._claim_arguments(request)
        *wants, watermarks, kinds = claim
        whose = [now, request.owner, request.number]
        if (
            self._last_was_small
            and watermarks is None
            and kinds is None
            and exchange_arguments.only_claims(request)
        ):
            return "claim_waiting", whose + wants
        values = whose + write_arguments(request, finishes, {}) + claim
        return ("exchange", values) if steps is None else ("exchange_steps", steps.values + values)

    def _claim_arguments(self, request: Exchange) -> list[Any]:
        """The arguments of the claims."""
        want = request.want
        if not want:
            return list(NO_CLAIMS)
        by_kind = any(one.kinds for one in want)
        watermarks = {} if by_kind else self.watermarks.positions(want)
        return [
            [one.queue for one in want],
            [one.free for one in want],
            [one.prefetch for one in want],
            rows.as_json(watermarks) if watermarks else None,
            [",".join(one.kinds) or None for one in want] if by_kind else None,
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
