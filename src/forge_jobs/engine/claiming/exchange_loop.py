"""The only caller of ``jobs.exchange``: one call in flight per process, as many jobs in it as fit,
and where a server writes a second one for large batches of successes (``beside``).

While a call runs the next batch gathers. An ending never waits for others, but for the two
milliseconds in which every slot already has its next job at hand. The pump wakes on an ending, on
free slots while work is believed to be there, on a hint from the store, when the next job comes
due, and otherwise only for the slow poll.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from forge_jobs.config import EngineSettings
from forge_jobs.core.errors import Full, Invalid, Unavailable
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.job import Claim
from forge_jobs.core.status import Event
from forge_jobs.engine.running.in_flight import InFlightJobs
from forge_jobs.engine.running.outcome import unstorable
from forge_jobs.engine.running.run import NEVER
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.store.jobs import Exchange, Exchanged, JobStore, Want

from .background_finisher import BackgroundFinisher
from .dispatcher import Dispatcher
from .finish_buffer import MAX_BATCH, NOTHING, Batch
from .reconciler import Reconciler
from .store_latency import StoreLatency

_LOG = logging.getLogger("forge_jobs.engine")
_BACKOFF_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
_MAX_CLAIMS = 1_000
_DUE_GAP_S = 0.005
_GATHER_S = 0.002


class ProcessCallbacks(Protocol):
    """What the pump needs to know of the process it pumps for."""

    @property
    def owner(self) -> int:
        """The key under which the store knows this process."""
        ...

    def control_changed(self) -> None:
        """The store shows another control version than before: operators did something."""
        ...

    def doubt_lease(self) -> None:
        """The store does not hold this process for alive: find out what that means."""
        ...

    async def begin_anew(self) -> None:
        """This process was declared dead: register again. Returns when that is done."""
        ...


class ExchangeLoop:
    """Turns endings into claims. ``run`` never ends by itself and never raises."""

    def __init__(
        self,
        floor: InFlightJobs,
        intake: Dispatcher,
        jobs: JobStore,
        life: ProcessCallbacks,
        *,
        settings: EngineSettings,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._floor = floor
        self._intake = intake
        self._jobs = jobs
        self._life = life
        self._settings = settings
        self._mono = clock.mono
        self._entropy = entropy
        self._doubt = Reconciler(floor, jobs, lease_s=settings.lease_s, now=clock.mono())
        self._number = 0
        self.trips = StoreLatency()
        self.errors = 0
        self._one_by_one = False
        self._hints = 0
        self._due_at = NEVER
        self._poll_at = -NEVER
        self._not_before = -NEVER
        self._control_version: int | None = None
        self._store_seen: tuple[Instant, float] | None = None
        self._wall = clock.now
        self._beside = BackgroundFinisher(
            floor.finish_buffer, self._write, self._is_calm, least=settings.beside_from
        )
        self.claims_left: int | None = None
        self.claiming = True
        self.came_back_empty = False
        self.trouble: Exception | None = None
        floor.store_now = self._store_now

    async def run(self) -> None:
        """Exchange whenever there is a reason to; until cancelled."""
        floor, gathered = self._floor, False
        try:
            while True:
                now = self._mono()
                if floor.standing.dead:
                    await self._guarded(self._begin_anew)
                elif self._doubt.is_due(now) and now >= self._not_before:
                    await self._beside.settled()
                    await self._guarded(self._reconcile)
                elif (due_at := self._next_at(now)) > now:
                    await floor.bell.wait(None if due_at == NEVER else due_at - now)
                elif not gathered and self._may_gather(now):
                    gathered = True
                    await floor.bell.wait(_GATHER_S)
                else:
                    gathered = False
                    await self._exchange()
        finally:
            floor.is_open = False
            await self._beside.end()

    def hint(self) -> None:
        """There may be work: on the job loop only."""
        self._hints += 1
        for lane in self._floor.lanes.values():
            lane.hungry = True
        self._floor.bell.notify()

    # -- when -----------------------------------------------------------------------------------

    def _next_at(self, now: float) -> float:
        floor = self._floor
        due_at = floor.finish_buffer.due_at()
        if due_at > now:
            due_at = min(due_at, self._claim_at(now))
        for lane in floor.lanes.values():
            if lane.ready:
                held_at = lane.ready[0].claimed_at + self._settings.prefetch_hold_s
                if held_at <= now:
                    lane.hand_back_older(now - self._settings.prefetch_hold_s)
                    due_at = now
                else:
                    due_at = min(due_at, held_at)
        return max(min(due_at, self._doubt.due_at), self._not_before)

    def _may_gather(self, now: float) -> bool:
        floor = self._floor
        return floor.is_fed and floor.finish_buffer.may_wait() and floor.may_start(now)

    def _claim_at(self, now: float) -> float:
        floor = self._floor
        if not self._may_claim(now):
            return NEVER
        at = NEVER
        for lane in floor.lanes.values():
            if lane.has_room:
                if lane.hungry:
                    return now
                at = min(self._due_at, self._poll_at)
            elif lane.runs_low and self._beside.is_busy:
                return now
        return at

    def _may_claim(self, now: float) -> bool:
        spent = self.claims_left is not None and self.claims_left <= 0
        return self.claiming and not spent and self._floor.may_start(now)

    # -- what -----------------------------------------------------------------------------------

    async def _exchange(self) -> None:
        floor = self._floor
        now = self._mono()
        # Taken first: then there is room for what runs while the call does.
        batch = floor.finish_buffer.take(1 if self._one_by_one else MAX_BATCH)
        wants = self._wants(now)
        if floor.apart and self._beside.takes(batch, _wanted_jobs(wants)):
            batch = NOTHING
        await self._call(batch, wants, now)

    def _is_calm(self) -> bool:
        """Whether calls come and go as they should."""
        doubtful = self._doubt.is_due(self._mono())
        return not (self.errors or self._one_by_one or doubtful or self._floor.standing.dead)

    async def _write(self, batch: Batch) -> None:
        await self._call(batch, [], self._mono())

    async def _call(self, batch: Batch, wants: list[Want], now: float) -> None:
        floor, hints = self._floor, self._hints
        life, owner = self._life, self._life.owner
        self._number += 1
        request = Exchange(
            owner=owner,
            number=self._number,
            finish=batch.finishes,
            release=batch.releases,
            started=[Claim(run.job.key, run.job.epoch) for run in batch.marks],
            notes=batch.notes,
            want=wants,
            timed=self._settings.metrics,
        )
        floor.pour()
        try:
            answer = await self._jobs.exchange(request)
        except Exception as error:
            self.trips.failed()
            if owner == life.owner and not floor.standing.dead:
                self._failed(batch, error)
            return
        if owner != life.owner or floor.standing.dead:
            # Declared dead while the call ran: whatever it claimed belongs to the past.
            return
        self.errors = 0
        self.trips.add(self._mono() - now)
        self._one_by_one = self._one_by_one and not floor.finish_buffer.is_empty
        try:
            self._apply(batch, wants, answer, news=hints != self._hints)
        except Exception as error:
            # A fault of ours must not end the pump: whatever it left undone is found by comparing.
            _LOG.exception("an exchange could not be taken in")
            self._doubt.rouse(self._mono())
            self._back_off(error)

    def _wants(self, now: float) -> list[Want]:
        floor = self._floor
        if not self._may_claim(now):
            return []
        most = _MAX_CLAIMS if self.claims_left is None else self.claims_left
        wants: list[Want] = []
        for lane in floor.in_turn(self._number):
            want = lane.want(now, prefetch_s=self._settings.prefetch_s, most=most)
            if want is not None:
                wants.append(want)
                most -= want.free + want.prefetch
        return wants

    def _apply(self, batch: Batch, wants: list[Want], answer: Exchanged, *, news: bool) -> None:
        floor, now = self._floor, self._mono()
        self._store_seen = (answer.now, now)
        floor.skew_s = answer.now / SECOND - now
        if not batch.is_nothing:
            floor.finish_buffer.written()
        floor.judged(batch.finishes, answer.verdicts)
        floor.handed_back(batch.releases)
        if not answer.alive:
            self._life.doubt_lease()
            return
        self._intake.accept(answer.claims, now)
        if wants:
            self._believe(wants, answer, now, news=news)
        for key in answer.cancels:
            floor.cancel(key)
        if answer.control_version != self._control_version:
            self._control_version = answer.control_version
            self._life.control_changed()
        floor.pour()

    def _believe(self, wants: list[Want], answer: Exchanged, now: float, *, news: bool) -> None:
        lanes = self._floor.lanes
        for want in wants:
            lane = lanes[want.queue]
            lane.hungry = news or lane.wanted <= 0
        if self.claims_left is not None:
            self.claims_left -= len(answer.claims)
        self.came_back_empty = not answer.claims and not news
        self._poll_at = now + self._settings.poll_s
        self._due_at = NEVER
        if answer.next_due is not None:
            wait_s = (answer.next_due - answer.now) / SECOND
            self._due_at = now + max(wait_s, _DUE_GAP_S)

    # -- trouble --------------------------------------------------------------------------------

    def _failed(self, batch: Batch, error: Exception) -> None:
        floor = self._floor
        if isinstance(error, Invalid) and batch.finishes:
            self._isolate(batch, error)
            return
        if not batch.is_nothing:
            floor.finish_buffer.put_back(batch)
        if not isinstance(error, Unavailable | Full):
            # Perhaps it happened: endings are repeated (the store says "already"), claims that
            # never reached us are looked for.
            self._doubt.rouse(self._mono())
        self._back_off(error)
        floor.pour()

    def _isolate(self, batch: Batch, error: Invalid) -> None:
        """One ending that the store can never take must not hold up the others."""
        if len(batch.finishes) == 1:
            bad = batch.finishes[0]
            self._floor.journal.rejected(bad, error)
            if bad.event is Event.DIE:
                # Nothing left to try: the row is found without a holder and handed back.
                self._floor.held.pop(bad.key, None)
                batch.finishes.clear()
            else:
                batch.finishes[0] = unstorable(bad, error)
        self._floor.finish_buffer.put_back(batch)
        self._one_by_one = True

    def _back_off(self, error: Exception) -> None:
        delay_s = _BACKOFF_S[min(self.errors, len(_BACKOFF_S) - 1)]
        delay_s *= 0.5 + self._entropy.roll() / 2
        self.errors += 1
        self.trouble = error
        self._not_before = self._mono() + delay_s
        self._floor.journal.store_trouble(error, delay_s)

    async def _guarded(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
            self.errors = 0
        except Exception as error:
            self._back_off(error)
            await self._floor.bell.wait(self._not_before - self._mono())

    async def _reconcile(self) -> None:
        await self._doubt.settle(self._life.owner, self._number, self._mono())

    async def _begin_anew(self) -> None:
        self._floor.lose_everything()
        await self._life.begin_anew()
        self._doubt.calm(self._mono())
        self._control_version = None

    def _store_now(self) -> Instant:
        """Store time by this process's steady clock: neither skew nor a set-back reaches it."""
        if self._store_seen is None:
            return self._wall()
        now, at = self._store_seen
        return now + int((self._mono() - at) * SECOND)


def _wanted_jobs(wants: list[Want]) -> int:
    return sum([want.free + want.prefetch for want in wants])
