"""The exchange in the model: finishes, releases, started marks, then claims.

Sources: ``JobStore.exchange``, docs/decisions/0004 (verdicts), 0041 (caps), and the documented
rules of the throttle gate: the asked delay, else the queue's curve, else a flat minute; throttles
while the gate is closed change nothing; a success resets a gate that has been open for two minutes.
"""

from msgspec import structs

from forge_jobs.core.decide import Finish
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.core.steps import FinishSteps
from forge_jobs.store.jobs import Exchange, Want

from .histories import NEVER
from .model import Model
from .state import (
    CANCELLED,
    DONE,
    FAILED,
    PENDING,
    RUNNING,
    SCHEDULED,
    SUSPENDED,
    ExpectedExchange,
    Gate,
    Job,
    later,
)

FLAT_S, QUIET_S, MAX_COUNT = 60.0, 120.0, 30
_COUNTED_AS = {Event.THROTTLE: "throttled", Event.SNOOZE: "released", Event.MISSING: "released"}
_DUE_LATER = (SCHEDULED, FAILED, SUSPENDED)


class ExchangeModel(Model):
    """The complete model."""

    def exchange(self, request: Exchange) -> ExpectedExchange:
        """One exchange of a process."""
        verdicts = [self._finish(request.owner, finish) for finish in request.finish]
        for claim in request.release:
            job = self.mine(request.owner, claim)
            if job is not None:
                self.release(job)
        for claim in request.started:
            job = self.mine(request.owner, claim)
            if job is not None:
                self.mark_started(job)
        alive = self.alive(request.owner)
        claims: dict[str, list[Job]] = {}
        due: list[int] = []
        for want in request.want if alive else ():
            self.promote_queue(want.queue)
            claims[want.queue] = self._serve(request, want)
            due += self._next_due(want, len(claims[want.queue]))
        cancels = {job.key for job in self.owned(request.owner) if job.stop_at is not None}
        return ExpectedExchange(alive, verdicts, claims, cancels, min(due, default=None))

    def _finish(self, owner: int, finish: Finish) -> str:
        job = self.jobs.get(finish.key)
        if job is None or job.epoch != finish.epoch:
            return "stale"
        if job.status is not RUNNING:
            return "already" if job.ended_by == (owner, finish.epoch) else "stale"
        if job.owner != owner:
            return "stale"
        job.ended_by = (owner, finish.epoch)
        self._apply(job, finish)
        for asked in finish.jobs:
            self.insert(asked)
        return "applied"

    def _apply(self, job: Job, finish: Finish) -> None:
        self.mark_started(job)
        delay_s = finish.delay_s
        if finish.event is Event.THROTTLE:
            job.throttles += 1
            job.throttled_since = job.throttled_since or self.now
            if finish.status is SCHEDULED:
                delay_s = self._throttle(job.queue, finish.delay_s)
        if finish.event is Event.MISSING:
            job.missing_since = job.missing_since or self.now
        elif finish.event is not Event.DONE:
            job.missing_since = None
        job.crashes += finish.event is Event.CRASH
        if finish.error is not None:
            if finish.event is Event.MISSING and finish.status is SCHEDULED:
                job.last_error = finish.error
            else:
                self.add_error(job, finish.error)
        is_cancelled = job.stop_at is not None and finish.status is not DONE
        if finish.steps is not None:
            self._add_steps(job, finish, finish.steps, is_cancelled=is_cancelled)
        if finish.status is DONE:
            job.result = finish.result
            self._ease(job.queue)
            self.end(job, DONE)
        elif job.stop_at is not None:
            job.last_error = job.stop_reason
            self.end(job, CANCELLED)
        elif finish.status is FAILED:
            self.count(job, "retried")
            self.delay(job, FAILED, delay_s or 0.0)
        elif finish.event in (Event.SUSPEND, Event.RESTART):
            self._park(job, finish)
        elif finish.status is SCHEDULED:
            job.attempts -= 1
            self.count(job, _COUNTED_AS[finish.event])
            self.delay(job, SCHEDULED, delay_s or 0.0)
            if finish.steps is not None and finish.steps.run_at is not None:
                job.run_at = finish.steps.run_at
        else:
            self.end(job, JobStatus.DEAD)

    # Histories.

    def _add_steps(
        self, job: Job, finish: Finish, extra: FinishSteps, *, is_cancelled: bool
    ) -> None:
        self.mark(job)
        if finish.event is Event.RESTART and not is_cancelled:
            job.steps, job.failed_runs = {}, 0
            job.asked = structs.replace(job.asked, payload=extra.payload or b"")
        for write in extra.steps:
            self.add_step(job, write)
        if extra.attempt_returned and not is_cancelled:
            job.attempts -= 1
            job.failed_runs += 1

    def _park(self, job: Job, finish: Finish) -> None:
        """A run ends with a wait or a restart; the job keeps its room if it goes on at once."""
        job.attempts -= 1
        job.owner = None
        self.count(job, "released")
        wait = None if finish.steps is None else finish.steps.wait
        if wait is None or self.decided(job, wait) is not None:
            job.status, job.run_at = PENDING, self.now
            return
        run_at = None if finish.steps is None else finish.steps.run_at
        job.status, job.wait = SUSPENDED, wait
        job.run_at = NEVER if run_at is None else run_at
        self.admit(*job.buckets)

    # Gates.

    def gate(self, queue: str) -> Gate:
        return self.gates.get(queue, Gate())

    def _throttle(self, queue: str, retry_after_s: float | None) -> float:
        gate, settings = self.gate(queue), self.queues.get(queue)
        curve = None if settings is None else settings.curve
        delay_s = retry_after_s
        if delay_s is None:
            delay_s = FLAT_S if curve is None else min(curve[0] * 2**gate.count, curve[1])
        if not gate.closed(self.now):
            count = min(gate.count + 1, MAX_COUNT)
            self.gates[queue] = Gate(later(self.now, delay_s), count)
        return delay_s

    def _ease(self, queue: str) -> None:
        gate = self.gate(queue)
        if gate.until is not None and later(gate.until, QUIET_S) <= self.now:
            del self.gates[queue]

    # Claims.

    def _open(self, queue: str) -> bool:
        settings = self.queues.get(queue)
        return not (settings is not None and settings.paused)

    def _serve(self, request: Exchange, want: Want) -> list[Job]:
        if not self._open(want.queue) or self.gate(want.queue).closed(self.now):
            return []
        line = [
            job
            for job in self.jobs.values()
            if job.status is PENDING
            and job.queue == want.queue
            and not job.expired(self.now)
            and (not want.kinds or job.kind in want.kinds)
        ]
        claimed: list[Job] = []
        for job in sorted(line, key=lambda job: (job.asked.priority, job.run_at, job.key)):
            if len(claimed) == want.free + want.prefetch:
                break
            prefetched = len(claimed) >= want.free
            if self._has_cap_room(job, prefetched=prefetched):
                self._claim(job, request, started=not prefetched)
                claimed.append(job)
        return claimed

    def cap(self, kind: str) -> int | None:
        """How many jobs of a task may run at once; None: any number."""
        limit = self.limits.get(f"task:{kind}")
        return None if limit is None or limit.per else limit.concurrency

    def _has_cap_room(self, job: Job, *, prefetched: bool) -> bool:
        cap = self.cap(job.kind)
        if cap is None:
            return True
        running = sum(o.status is RUNNING and o.kind == job.kind for o in self.jobs.values())
        return running < cap and not prefetched

    def _claim(self, job: Job, request: Exchange, *, started: bool) -> None:
        job.status, job.owner = RUNNING, request.owner
        job.epoch += 1
        job.attempts += 1
        job.number, job.started = request.number, False
        self.count(job, "started")
        if started:
            self.mark_started(job)

    def _next_due(self, want: Want, got: int) -> list[int]:
        """When a worker that got too few jobs must claim again, where the contract defines it."""
        if got >= want.free + want.prefetch or not self._open(want.queue):
            return []
        until = self.gate(want.queue).until or 0
        return [
            max(job.run_at, until)
            for job in self.jobs.values()
            if job.queue == want.queue and job.status in _DUE_LATER and job.run_at != NEVER
        ]
