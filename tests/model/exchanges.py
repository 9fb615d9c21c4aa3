"""The exchange in the model: finishes, releases, started marks, then claims.

Sources: ``JobStore.exchange``, docs/decisions/0004 (verdicts), 0041 (caps), and the documented
rules of the throttle gate: a hint, else the queue's curve, else a flat minute; throttles while the
gate is closed change nothing; a success forgets a gate that has been open for two minutes.
"""

from forge_jobs.core.decide import Finish
from forge_jobs.core.status import Event, JobStatus
from forge_jobs.store.jobs import Exchange, Want

from .model import Model
from .state import CANCELLED, DONE, FAILED, PENDING, RUNNING, SCHEDULED, Gate, Job, Round, later

FLAT_S, QUIET_S, COUNT_MOST = 60.0, 120.0, 30
_BOOKED = {Event.THROTTLE: "throttled", Event.SNOOZE: "released", Event.MISSING: "released"}


class Rounds(Model):
    """The whole model."""

    def exchange(self, request: Exchange) -> Round:
        """One round of a process."""
        verdicts = [self._finish(request.owner, end) for end in request.finish]
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
        return Round(alive, verdicts, claims, cancels, min(due, default=None))

    def _finish(self, owner: int, end: Finish) -> str:
        job = self.jobs.get(end.key)
        if job is None or job.epoch != end.epoch:
            return "stale"
        if job.status is not RUNNING:
            return "already" if job.ended_by == (owner, end.epoch) else "stale"
        if job.owner != owner:
            return "stale"
        job.ended_by = (owner, end.epoch)
        self._apply(job, end)
        for asked in end.jobs:
            self.insert(asked)
        return "applied"

    def _apply(self, job: Job, end: Finish) -> None:
        self.mark_started(job)
        delay_s = end.delay_s
        if end.event is Event.THROTTLE:
            job.throttles += 1
            job.throttled_since = job.throttled_since or self.now
            if end.status is SCHEDULED:
                delay_s = self._throttle(job.queue, end.delay_s)
        if end.event is Event.MISSING:
            job.missing_since = job.missing_since or self.now
        job.crashes += end.event is Event.CRASH
        if end.error is not None:
            if end.event is Event.MISSING and end.status is SCHEDULED:
                job.last_error = end.error
            else:
                self.blame(job, end.error)
        if end.status is DONE:
            job.result = end.result
            self._ease(job.queue)
            self.end(job, DONE)
        elif job.stop_at is not None:
            job.last_error = job.stop_reason
            self.end(job, CANCELLED)
        elif end.status is FAILED:
            self.count(job, "retried")
            self.put_off(job, FAILED, delay_s or 0.0)
        elif end.status is SCHEDULED:
            job.attempts -= 1
            self.count(job, _BOOKED[end.event])
            self.put_off(job, SCHEDULED, delay_s or 0.0)
        else:
            self.end(job, JobStatus.DEAD)

    # Gates.

    def gate(self, queue: str) -> Gate:
        return self.gates.get(queue, Gate())

    def _throttle(self, queue: str, hint_s: float | None) -> float:
        gate, settings = self.gate(queue), self.queues.get(queue)
        curve = None if settings is None else settings.curve
        delay_s = hint_s
        if delay_s is None:
            delay_s = FLAT_S if curve is None else min(curve[0] * 2**gate.count, curve[1])
        if not gate.closed(self.now):
            count = min(gate.count + 1, COUNT_MOST)
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
            ahead = len(claimed) >= want.free
            if self._has_cap_room(job, ahead=ahead):
                self._claim(job, request, started=not ahead)
                claimed.append(job)
        return claimed

    def cap(self, kind: str) -> int | None:
        """How many jobs of a task may run at once; None: any number."""
        limit = self.limits.get(f"task:{kind}")
        return None if limit is None or limit.per else limit.concurrency

    def _has_cap_room(self, job: Job, *, ahead: bool) -> bool:
        cap = self.cap(job.kind)
        if cap is None:
            return True
        running = sum(o.status is RUNNING and o.kind == job.kind for o in self.jobs.values())
        return running < cap and not ahead

    def _claim(self, job: Job, request: Exchange, *, started: bool) -> None:
        job.status, job.owner = RUNNING, request.owner
        job.epoch += 1
        job.attempts += 1
        job.number, job.started = request.number, False
        self.count(job, "started")
        if started:
            self.mark_started(job)

    def _next_due(self, want: Want, got: int) -> list[int]:
        """By when a worker that got too little must look again, where that is plain."""
        if got >= want.free + want.prefetch or not self._open(want.queue):
            return []
        until = self.gate(want.queue).until or 0
        return [
            max(job.run_at, until)
            for job in self.jobs.values()
            if job.queue == want.queue and job.status in (SCHEDULED, FAILED)
        ]
