"""The only caller of ``jobs.exchange``: one call in flight per process, as many jobs in it as fit,
and where a server writes a second one for large batches of successes (``beside``).

While a call runs the next batch gathers. An ending never waits for others, but for the two
milliseconds in which every slot already has its next job at hand. The pump wakes on an ending, on
free slots while work is believed to be there, on a hint from the store, when the next job comes
due, and otherwise only for the slow poll.
"""

import logging
from collections.abc import Awaitable, Callable

from forge_jobs.config import EngineSettings
from forge_jobs.core.errors import Full, Invalid, Unavailable
from forge_jobs.core.instant import SECOND
from forge_jobs.core.job import Claim
from forge_jobs.core.status import Event
from forge_jobs.engine.liveness.registration import Registration
from forge_jobs.engine.running.in_flight import InFlightJobs
from forge_jobs.engine.running.outcome import unstorable
from forge_jobs.engine.running.run import NEVER
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.store.jobs import Exchange, Exchanged, JobStore, Want

from .background_finisher import BackgroundFinisher
from .dispatcher import Dispatcher
from .finish_buffer import MAX_BATCH, NOTHING, Batch, FinishBuffer
from .local_queues import LocalQueues
from .reconciler import Reconciler
from .store_latency import StoreLatency
from .store_time import StoreTime
from .wake_signal import WakeSignal

_LOG = logging.getLogger("forge_jobs.engine")
_BACKOFF_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
_MAX_CLAIMS = 1_000
_DUE_GAP_S = 0.005
_GATHER_S = 0.002


class ExchangeLoop:
    """Turns endings into claims. ``run`` never ends by itself and never raises.

    ``overlap``: the store writes in another process, so that a second call may write endings while
    the loop's own call claims. ``max_claims`` bounds how many jobs are claimed in all.
    ``register_again`` is awaited after the store declared this process dead; ``on_control_change``
    is called when operators changed something.
    """

    def __init__(
        self,
        in_flight: InFlightJobs,
        local_queues: LocalQueues,
        finish_buffer: FinishBuffer,
        dispatcher: Dispatcher,
        jobs: JobStore,
        registration: Registration,
        *,
        wake: WakeSignal,
        store_time: StoreTime,
        settings: EngineSettings,
        clock: Clock,
        entropy: Entropy,
        register_again: Callable[[], Awaitable[None]],
        on_control_change: Callable[[], None],
        overlap: bool = False,
        max_claims: int | None = None,
    ) -> None:
        self._in_flight = in_flight
        self._local_queues = local_queues
        self._finish_buffer = finish_buffer
        self._dispatcher = dispatcher
        self._jobs = jobs
        self._registration = registration
        self._lease_state = registration.standing
        self._run_log = in_flight.run_log
        self._wake = wake
        self._store_time = store_time
        self._settings = settings
        self._mono = clock.mono
        self._entropy = entropy
        self._register_again = register_again
        self._on_control_change = on_control_change
        self._reconciler = Reconciler(
            in_flight, finish_buffer, jobs, lease_s=settings.lease_s, now=clock.mono()
        )
        self._overlap = overlap and not settings.strict
        self._number = 0
        self.trips = StoreLatency()
        self.errors = 0
        self._one_by_one = False
        self._hints = 0
        self._due_at = NEVER
        self._poll_at = -NEVER
        self._not_before = -NEVER
        self._control_version: int | None = None
        self._beside = BackgroundFinisher(
            finish_buffer, self._write, self._is_calm, least=settings.beside_from
        )
        self.claims_left = max_claims
        self.came_back_empty = False
        self.trouble: Exception | None = None

    async def run(self) -> None:
        """Exchange whenever there is a reason to; until cancelled."""
        wake, gathered = self._wake, False
        try:
            while True:
                now = self._mono()
                if self._lease_state.dead:
                    await self._guarded(self._begin_anew)
                elif self._reconciler.is_due(now) and now >= self._not_before:
                    await self._beside.settled()
                    await self._guarded(self._reconcile)
                elif (due_at := self._next_at(now)) > now:
                    await wake.wait(None if due_at == NEVER else due_at - now)
                elif not gathered and self._may_gather(now):
                    gathered = True
                    await wake.wait(_GATHER_S)
                else:
                    gathered = False
                    await self._exchange()
        finally:
            self._local_queues.close()
            await self._beside.end()

    def hint(self) -> None:
        """There may be work: on the job loop only."""
        self._hints += 1
        self._local_queues.hint()
        self._wake.notify()

    def lose_claims(self) -> None:
        """The store declared this process dead: end its handlers, write nothing of it."""
        self._local_queues.clear()
        self._in_flight.lose_all()
        self._finish_buffer.clear()

    # -- when -----------------------------------------------------------------------------------

    def _next_at(self, now: float) -> float:
        due_at = self._finish_buffer.due_at()
        if due_at > now:
            due_at = min(due_at, self._claim_at(now))
        for queue in self._local_queues.by_name.values():
            if queue.ready:
                held_at = queue.ready[0].claimed_at + self._settings.prefetch_hold_s
                if held_at <= now:
                    queue.hand_back_older(now - self._settings.prefetch_hold_s)
                    due_at = now
                else:
                    due_at = min(due_at, held_at)
        return max(min(due_at, self._reconciler.due_at), self._not_before)

    def _may_gather(self, now: float) -> bool:
        queues = self._local_queues
        return queues.is_fed and self._finish_buffer.may_wait() and queues.may_start(now)

    def _claim_at(self, now: float) -> float:
        if not self._may_claim(now):
            return NEVER
        at = NEVER
        for queue in self._local_queues.by_name.values():
            if queue.has_room:
                if queue.hungry:
                    return now
                at = min(self._due_at, self._poll_at)
            elif queue.runs_low and self._beside.is_busy:
                return now
        return at

    def _may_claim(self, now: float) -> bool:
        spent = self.claims_left is not None and self.claims_left <= 0
        return not spent and self._local_queues.may_start(now)

    # -- what -----------------------------------------------------------------------------------

    async def _exchange(self) -> None:
        now = self._mono()
        # Taken first: then there is room for what runs while the call does.
        batch = self._finish_buffer.take(1 if self._one_by_one else MAX_BATCH)
        wants = self._wants(now)
        if self._overlap and self._beside.takes(batch, _wanted_jobs(wants)):
            batch = NOTHING
        await self._call(batch, wants, now)

    def _is_calm(self) -> bool:
        """Whether calls come and go as they should."""
        doubtful = self._reconciler.is_due(self._mono())
        return not (self.errors or self._one_by_one or doubtful or self._lease_state.dead)

    async def _write(self, batch: Batch) -> None:
        await self._call(batch, [], self._mono())

    async def _call(self, batch: Batch, wants: list[Want], now: float) -> None:
        hints, owner = self._hints, self._registration.owner
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
        self._local_queues.pour()
        try:
            answer = await self._jobs.exchange(request)
        except Exception as error:
            self.trips.failed()
            if owner == self._registration.owner and not self._lease_state.dead:
                self._failed(batch, error)
            return
        if owner != self._registration.owner or self._lease_state.dead:
            # Declared dead while the call ran: whatever it claimed belongs to the past.
            return
        self.errors = 0
        self.trips.add(self._mono() - now)
        self._one_by_one = self._one_by_one and not self._finish_buffer.is_empty
        try:
            self._apply(batch, wants, answer, news=hints != self._hints)
        except Exception as error:
            # A fault of ours must not end the pump: whatever it left undone is found by comparing.
            _LOG.exception("an exchange could not be taken in")
            self._reconciler.rouse(self._mono())
            self._back_off(error)

    def _wants(self, now: float) -> list[Want]:
        if not self._may_claim(now):
            return []
        most = _MAX_CLAIMS if self.claims_left is None else self.claims_left
        wants: list[Want] = []
        for queue in self._local_queues.in_turn(self._number):
            want = queue.want(now, prefetch_s=self._settings.prefetch_s, most=most)
            if want is not None:
                wants.append(want)
                most -= want.free + want.prefetch
        return wants

    def _apply(self, batch: Batch, wants: list[Want], answer: Exchanged, *, news: bool) -> None:
        in_flight, now = self._in_flight, self._mono()
        self._store_time.observe(answer.now, now)
        if not batch.is_nothing:
            self._finish_buffer.written()
        in_flight.judged(batch.finishes, answer.verdicts)
        in_flight.handed_back(batch.releases)
        if not answer.alive:
            self._registration.lease.doubt()
            return
        self._dispatcher.accept(answer.claims, now)
        if wants:
            self._believe(wants, answer, now, news=news)
        for key in answer.cancels:
            in_flight.cancel(key)
        if answer.control_version != self._control_version:
            self._control_version = answer.control_version
            self._on_control_change()
        self._local_queues.pour()

    def _believe(self, wants: list[Want], answer: Exchanged, now: float, *, news: bool) -> None:
        by_name = self._local_queues.by_name
        for want in wants:
            queue = by_name[want.queue]
            queue.hungry = news or queue.wanted <= 0
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
        if isinstance(error, Invalid) and batch.finishes:
            self._isolate(batch, error)
            return
        if not batch.is_nothing:
            self._finish_buffer.put_back(batch)
        if not isinstance(error, Unavailable | Full):
            # Perhaps it happened: endings are repeated (the store says "already"), claims that
            # never reached us are looked for.
            self._reconciler.rouse(self._mono())
        self._back_off(error)
        self._local_queues.pour()

    def _isolate(self, batch: Batch, error: Invalid) -> None:
        """One ending that the store can never take must not hold up the others."""
        if len(batch.finishes) == 1:
            bad = batch.finishes[0]
            self._run_log.rejected(bad, error)
            if bad.event is Event.DIE:
                # Nothing left to try: the row is found without a holder and handed back.
                self._in_flight.held.pop(bad.key, None)
                batch.finishes.clear()
            else:
                batch.finishes[0] = unstorable(bad, error)
        self._finish_buffer.put_back(batch)
        self._one_by_one = True

    def _back_off(self, error: Exception) -> None:
        delay_s = _BACKOFF_S[min(self.errors, len(_BACKOFF_S) - 1)]
        delay_s *= 0.5 + self._entropy.roll() / 2
        self.errors += 1
        self.trouble = error
        self._not_before = self._mono() + delay_s
        self._run_log.store_trouble(error, delay_s)

    async def _guarded(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
            self.errors = 0
        except Exception as error:
            self._back_off(error)
            await self._wake.wait(self._not_before - self._mono())

    async def _reconcile(self) -> None:
        await self._reconciler.settle(self._registration.owner, self._number, self._mono())

    async def _begin_anew(self) -> None:
        self.lose_claims()
        await self._register_again()
        self._reconciler.calm(self._mono())
        self._control_version = None


def _wanted_jobs(wants: list[Want]) -> int:
    return sum([want.free + want.prefetch for want in wants])
