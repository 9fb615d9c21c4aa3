"""Claims jobs and writes finishes, both in one store call: the loop around ``jobs.exchange``.

One call is in flight at a time, with as many jobs in it as fit; where the store is a server, a
second one may write a large batch of successes beside it (``background_finisher``). While a call
runs, the next batch gathers in the finish buffer. A finish waits for no other, except for up to
two milliseconds while every busy queue already has its next job. The loop wakes up for a finish,
for a free slot while the store is expected to have jobs, for a notification from the store, when
the next job comes due, and otherwise only for the slow poll.

The pull queue (``forge_jobs.pull``) calls ``exchange`` too, for scripts without a worker process.
"""

import logging
from collections.abc import Awaitable, Callable

from forge_jobs.config import EngineSettings
from forge_jobs.core.errors import Full, Invalid, LeaseLost, Unavailable
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
from .finish_buffer import EMPTY_BATCH, MAX_BATCH, Batch, FinishBuffer
from .local_queues import LocalQueues
from .reconciler import Reconciler
from .step_buffer import EMPTY_STEPS, StepBatch, StepBuffer
from .store_latency import StoreLatency
from .store_time import StoreTime
from .wake_signal import WakeSignal

_LOG = logging.getLogger("forge_jobs.engine")
_BACKOFF_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
_MAX_CLAIMS = 1_000
_DUE_GAP_S = 0.005
_GATHER_S = 0.002


class ExchangeLoop:
    """Runs until it is cancelled; an error of the store is logged and retried with back-off.

    ``overlap``: the store works in another process, so that a second call can write finishes while
    the loop's own call claims. ``max_claims`` bounds how many jobs are claimed in total.
    ``register_again`` is awaited after the store declared this process dead. ``on_control_change``
    is called when the control version changed. ``empty_queues``: had no job to claim since the
    last claim or write (which may make another due).
    """

    def __init__(
        self,
        in_flight: InFlightJobs,
        local_queues: LocalQueues,
        finish_buffer: FinishBuffer,
        step_buffer: StepBuffer,
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
        self._step_buffer = step_buffer
        self._dispatcher = dispatcher
        self._jobs = jobs
        self._registration, self._lease_state = registration, registration.lease_state
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
        self._exchange_number = 0
        self.store_latency = StoreLatency()
        self.errors = 0
        self._one_by_one = False
        self._notifications = 0
        self._due_at = NEVER
        self._poll_at = -NEVER
        self._backoff_until = -NEVER
        self._control_version: int | None = None
        self._background_finisher = BackgroundFinisher(
            finish_buffer,
            self._write,
            self._is_healthy,
            clock.mono,
            min_finishes=settings.min_background_finishes,
        )
        self.claims_left, self.empty_queues = max_claims, set[str]()
        self.last_error: Exception | None = None

    async def run(self) -> None:
        """Exchange whenever there is a reason to, until cancelled."""
        wake, has_gathered = self._wake, False
        try:
            while True:
                now = self._mono()
                if self._lease_state.dead:
                    await self._with_backoff(self._lose_and_register_again)
                elif self._reconciler.is_due(now) and now >= self._backoff_until:
                    await self._background_finisher.wait()
                    await self._with_backoff(self._reconcile)
                elif (due_at := self._next_at(now)) > now:
                    await wake.wait(None if due_at == NEVER else due_at - now)
                elif not has_gathered and self._may_wait(now):
                    has_gathered = True
                    await wake.wait(_GATHER_S)
                else:
                    has_gathered = False
                    await self._exchange()
        finally:
            self._local_queues.close()
            await self._background_finisher.cancel()
            self._step_buffer.fail_all(LeaseLost("this worker has stopped"))

    def notify(self) -> None:
        """The store may have new jobs. Call it on the job loop."""
        self._notifications += 1
        self.empty_queues.clear()
        self.claim_now()

    def claim_now(self) -> None:
        """Claim without a notification. Call it on the job loop."""
        self._local_queues.expect_jobs()
        self._wake.notify()

    def lose_claims(self) -> None:
        """Drop all claims after the store declared this process dead: handlers are told to end, and
        nothing of theirs is written."""
        self._local_queues.clear()
        self._in_flight.lose_all()
        self._finish_buffer.clear()
        self._step_buffer.fail_all(LeaseLost("this worker lost its lease"))

    # -- timing -----------------------------------------------------------------------------------

    def _next_at(self, now: float) -> float:
        due_at = self._finish_buffer.due_at() if self._step_buffer.is_empty else -NEVER
        if due_at > now:
            due_at = min(due_at, self._claim_at(now))
        for queue in self._local_queues.by_name.values():
            if queue.ready:
                held_at = queue.ready[0].claimed_at + self._settings.prefetch_hold_s
                if held_at <= now:
                    queue.release_older(now - self._settings.prefetch_hold_s)
                    due_at = now
                else:
                    due_at = min(due_at, held_at)
        return max(min(due_at, self._reconciler.due_at), self._backoff_until)

    def _may_wait(self, now: float) -> bool:
        queues = self._local_queues
        if not self._step_buffer.is_empty:
            return False
        return queues.all_supplied and self._finish_buffer.may_wait() and queues.may_start(now)

    def _claim_at(self, now: float) -> float:
        if not self._may_claim(now):
            return NEVER
        at = NEVER
        for queue in self._local_queues.by_name.values():
            if queue.has_room:
                if queue.expects_jobs:
                    return now
                at = min(self._due_at, self._poll_at)
            elif queue.runs_low and self._background_finisher.is_busy:
                return now
        return at

    def _may_claim(self, now: float) -> bool:
        spent = self.claims_left is not None and self.claims_left <= 0
        return not spent and self._local_queues.may_start(now)

    # -- exchange ---------------------------------------------------------------------------------

    async def _exchange(self) -> None:
        now = self._mono()
        # Before the wants: a taken batch makes room for jobs that finish during the call.
        limit = 1 if self._one_by_one else MAX_BATCH
        batch = self._finish_buffer.take(limit, now=now)
        steps = self._step_buffer.take(0 if self._one_by_one and batch.finishes else limit, batch)
        # An exchange that is due for steps alone asks for no jobs before it is time to.
        is_claim_due = steps.is_empty or not batch.is_empty or self._claim_at(now) <= now
        wants = self._wants(now) if is_claim_due else []
        if self._overlap and self._background_finisher.start(batch, _wanted_jobs(wants)):
            batch = EMPTY_BATCH
        await self._call(batch, wants, now, steps)

    def _is_healthy(self) -> bool:
        """Whether a second call may run beside this one: no error, no reconciliation pending."""
        must_reconcile = self._reconciler.is_due(self._mono())
        return not (self.errors or self._one_by_one or must_reconcile or self._lease_state.dead)

    async def _write(self, batch: Batch) -> None:
        await self._call(batch, [], self._mono())

    async def _call(
        self, batch: Batch, wants: list[Want], now: float, steps: StepBatch = EMPTY_STEPS
    ) -> None:
        notifications, owner = self._notifications, self._registration.owner
        self._exchange_number += 1
        request = Exchange(
            owner=owner,
            number=self._exchange_number,
            finish=batch.finishes,
            release=batch.releases,
            started=[Claim(run.job.key, run.job.epoch) for run in batch.marks],
            notes=batch.notes,
            want=wants,
            timed=self._settings.metrics,
            steps=steps.writes,
            waits=steps.checks,
        )
        self._local_queues.start_ready()
        try:
            reply = await self._jobs.exchange(request)
        except Exception as error:
            self.store_latency.failed()
            if owner == self._registration.owner and not self._lease_state.dead:
                self._handle_error(batch, steps, error)
            else:
                steps.fail(LeaseLost("this worker lost its lease"))
            return
        if owner != self._registration.owner or self._lease_state.dead:
            # Declared dead during the call: its claims belong to the former registration.
            steps.fail(LeaseLost("this worker lost its lease"))
            return
        self.errors = 0
        self.store_latency.add(self._mono() - now)
        self._one_by_one = self._one_by_one and not (
            self._finish_buffer.is_empty and self._step_buffer.is_empty
        )
        try:
            steps.answer(reply.steps, reply.waits)
            self._apply(batch, wants, reply, notified=notifications != self._notifications)
        except Exception as error:
            # A bug here must not end the loop. Reconciling finds the claims it left behind.
            _LOG.exception("the reply of an exchange could not be applied")
            self._reconciler.request(self._mono())
            self._back_off(error)

    def _wants(self, now: float) -> list[Want]:
        if not self._may_claim(now):
            return []
        max_jobs = _MAX_CLAIMS if self.claims_left is None else self.claims_left
        wants: list[Want] = []
        for queue in self._local_queues.rotated(self._exchange_number):
            want = queue.want(now, prefetch_s=self._settings.prefetch_s, max_jobs=max_jobs)
            if want is not None:
                wants.append(want)
                max_jobs -= want.free + want.prefetch
        if max_jobs <= 0 and self.claims_left is None:
            return self._spread_wants(now)
        return wants

    def _spread_wants(self, now: float) -> list[Want]:
        """Wants of more queues than fit into one exchange: a few jobs of each, first of those that
        are expected to have some. Else 1,000 queues of 10 slots would need 900 exchanges to see
        that all are empty, after every notification."""
        queues = self._local_queues.rotated(self._exchange_number * _MAX_CLAIMS)
        expecting = [queue for queue in queues if queue.expects_jobs and queue.has_room]
        others = [queue for queue in queues if not queue.expects_jobs or not queue.has_room]
        left, wants = _MAX_CLAIMS, list[Want]()
        for group in (expecting, others):
            share = max(left // len(group), 1) if group else 0
            for queue in group:
                want = queue.want(
                    now, prefetch_s=self._settings.prefetch_s, max_jobs=min(share, left)
                )
                if want is not None:
                    wants.append(want)
                    left -= want.free + want.prefetch
        return wants

    def _apply(self, batch: Batch, wants: list[Want], reply: Exchanged, *, notified: bool) -> None:
        in_flight, now = self._in_flight, self._mono()
        self._store_time.observe(reply.now, now)
        if not batch.is_empty:
            self._finish_buffer.batch_written()
        in_flight.apply_verdicts(batch.finishes, reply.verdicts)
        in_flight.apply_releases(batch.releases)
        if not reply.alive:
            self._registration.lease.distrust()
            return
        self._dispatcher.accept(reply.claims, now)
        if reply.claims or not batch.is_empty:
            self.empty_queues.clear()
        elif not notified:
            self.empty_queues.update([want.queue for want in wants])
        if wants:
            self._update_expectations(wants, reply, now, notified=notified)
        for key in reply.cancels:
            in_flight.cancel(key)
        if reply.control_version != self._control_version:
            self._control_version = reply.control_version
            self._on_control_change()
        self._local_queues.start_ready()

    def _update_expectations(
        self, wants: list[Want], reply: Exchanged, now: float, *, notified: bool
    ) -> None:
        by_name = self._local_queues.by_name
        for want in wants:
            queue = by_name[want.queue]
            queue.expects_jobs = notified or queue.want_left <= 0
        if self.claims_left is not None:
            self.claims_left -= len(reply.claims)
        self._poll_at = now + self._settings.poll_s
        self._due_at = NEVER
        if reply.next_due is not None:
            wait_s = (reply.next_due - reply.now) / SECOND
            self._due_at = now + max(wait_s, _DUE_GAP_S)

    # -- errors -------------------------------------------------------------------------------

    def _handle_error(self, batch: Batch, steps: StepBatch, error: Exception) -> None:
        if isinstance(error, Invalid) and (batch.finishes or not steps.is_empty):
            self._isolate_refused(batch, steps, error)
            return
        self._step_buffer.put_back(steps)
        if not batch.is_empty:
            self._finish_buffer.put_back(batch)
        if not isinstance(error, Unavailable | Full):
            # The call may have had its effect. Finishes are idempotent and sent again (verdict
            # "already"); claims whose reply was lost are found by reconciling.
            self._reconciler.request(self._mono())
        self._back_off(error)
        self._local_queues.start_ready()

    def _isolate_refused(self, batch: Batch, steps: StepBatch, error: Invalid) -> None:
        """Find the finish or step that the store refuses: it must not block the others."""
        if not batch.finishes and steps.is_single:
            steps.fail(error)
        else:
            self._step_buffer.put_back(steps)
        if len(batch.finishes) == 1 and steps.is_empty:
            refused = batch.finishes[0]
            self._run_log.rejected(refused, error)
            if refused.event is Event.DIE:
                # Nothing left to try. The reconciler will find the row and release it.
                self._in_flight.held.pop(refused.key, None)
                batch.finishes.clear()
            else:
                batch.finishes[0] = unstorable(refused, error)
        if not batch.is_empty:
            self._finish_buffer.put_back(batch)
        self._one_by_one = True

    def _back_off(self, error: Exception) -> None:
        delay_s = _BACKOFF_S[min(self.errors, len(_BACKOFF_S) - 1)]
        delay_s *= 0.5 + self._entropy.roll() / 2
        self.errors += 1
        self.last_error = error
        self._backoff_until = self._mono() + delay_s
        self._run_log.exchange_failed(error, delay_s)

    async def _with_backoff(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
            self.errors = 0
        except Exception as error:
            self._back_off(error)
            await self._wake.wait(self._backoff_until - self._mono())

    async def _reconcile(self) -> None:
        await self._reconciler.reconcile(
            self._registration.owner, self._exchange_number, self._mono()
        )

    async def _lose_and_register_again(self) -> None:
        self.lose_claims()
        await self._register_again()
        self._reconciler.postpone(self._mono())
        self._control_version = None


def _wanted_jobs(wants: list[Want]) -> int:
    return sum([want.free + want.prefetch for want in wants])
