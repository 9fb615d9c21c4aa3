"""Drives a job into any state and through any transition, by calls of the contracts alone."""

from typing import Any, Final

from forge_jobs.core.decide import Budgets, StepProgress
from forge_jobs.core.events import NewEvent, Wait, WaitTopic, topic_of
from forge_jobs.core.job import ClaimedJob, Enqueued, JobRecord
from forge_jobs.core.outcome import (
    AnyOutcome,
    Crashed,
    Dead,
    Done,
    Failed,
    Missing,
    Parked,
    Restarted,
    Snooze,
    Throttled,
)
from forge_jobs.core.retry import Backoff
from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.core.status import Attempts, Event, JobStatus, Rule
from forge_jobs.store.jobs import Verdict
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import LEASE_S, Process, claim_of, enqueue, record

HOUR = 3_600.0
REASON = "not wanted any more"
CRASH_NOTE = "the worker process died"
_SLOW = Backoff(base_s=2 * HOUR, max_s=2 * HOUR)
_NO_BUDGET = Budgets(throttle_s=1.0, missing_s=1.0, max_crashes=1)


class JobDriver:
    """Drives one job in a queue of its own, with one store, one clock and one worker."""

    def __init__(self, store: Store, clock: MovableClock, worker: Process, queue: str) -> None:
        self.store = store
        self.clock = clock
        self.worker = worker
        self.queue = queue
        self.job_id = ""
        self.claimed: ClaimedJob | None = None

    async def bring_to(self, status: JobStatus, **options: Any) -> None:
        """Enqueue a job and bring it into ``status``."""
        match status:
            case JobStatus.SCHEDULED:
                await self._put(delay_s=2 * HOUR, **options)
            case JobStatus.HELD:
                await self._put(hold=True, limit_key=self.queue, **options)
            case JobStatus.PENDING:
                await self._put(**options)
            case JobStatus.RUNNING:
                await self._run(**options)
            case JobStatus.FAILED:
                await self._run(**options)
                await self.finish(Failed("no luck"), backoff=_SLOW)
            case JobStatus.SUSPENDED:
                await self._run(**options)
                await self.finish(PARKED)
            case JobStatus.DONE:
                await self._run(**options)
                await self.finish(Done(), result=b"1")
            case JobStatus.DEAD:
                await self._run(**options)
                await self.finish(Dead("hopeless"))
            case JobStatus.CANCELLED:
                await self._put(**options)
                await self.store.jobs.act(BulkAction.CANCEL, self.selection, reason=REASON, limit=1)
        assert (await self.now()).status is status

    async def now(self) -> JobRecord:
        """The record of the job now."""
        return await record(self.store, self.job_id)

    @property
    def selection(self) -> Selection:
        return Selection(ids=(self.job_id,))

    async def claim(self, *, prefetch: bool = False) -> list[ClaimedJob]:
        """Claim one job of this queue."""
        free, prefetched = (0, 1) if prefetch else (1, 0)
        claims = await self.worker.claim(self.queue, free, prefetched)
        if claims:
            self.claimed = claims[0]
        return claims

    async def finish(self, outcome: AnyOutcome, **how: Any) -> Verdict:
        """Finish the claim as the engine would; the verdict."""
        assert self.claimed is not None
        return await self.worker.finish(self.claimed, outcome, **how)

    async def _put(self, **options: Any) -> Enqueued:
        answer = await enqueue(self.store, queue=self.queue, **options)
        self.job_id = answer.id
        return answer

    async def _run(self, *, prefetch: bool = False, **options: Any) -> None:
        await self._put(**options)
        assert await self.claim(prefetch=prefetch)


async def prepare(driver: JobDriver, rule: Rule) -> None:
    """Bring the job into ``rule.source``, under the condition ``rule.when``."""
    assert rule.source is not None
    options: dict[str, Any] = {}
    if rule.event is Event.EXPIRE:
        options["expires_s"] = HOUR
    if rule.target is JobStatus.DEAD and rule.event in (Event.FAIL, Event.REAP):
        options["max_attempts"] = 1
    if rule.event is Event.REAP and rule.attempts is Attempts.GIVEN_BACK:
        options["prefetch"] = True
    await driver.bring_to(rule.source, **options)
    if rule.target is JobStatus.DEAD and rule.event in _BUDGETED:
        # A budget starts with the first outcome of its kind.
        await driver.finish(OUTCOMES[rule.event])
        await driver.worker.advance(HOUR)
        assert await driver.claim()
    if rule.event is Event.SUSPEND and rule.target is JobStatus.PENDING:
        await driver.store.events.send([EVENT])
    if rule.source is JobStatus.RUNNING and rule.target is JobStatus.CANCELLED:
        await driver.store.jobs.act(BulkAction.CANCEL, driver.selection, reason=REASON, limit=1)


async def apply(
    driver: JobDriver, event: Event, *, no_budget: bool = False, progress: bool = False
) -> object:
    """Apply ``event`` to the job, whatever its state; the answer of the call.

    ``no_budget``: with all budgets used up. ``progress``: after a run that stored a step.
    """
    jobs = driver.store.jobs
    match event:
        case Event.PROMOTE | Event.EXPIRE:
            await driver.worker.advance(3 * HOUR if event is Event.PROMOTE else HOUR + 1)
            answer = await jobs.promote(limit=100)
        case Event.UNHOLD:
            answer = await jobs.unhold(driver.queue, limit=10)
        case Event.CLAIM:
            answer = await driver.claim()
        case Event.RELEASE:
            assert driver.claimed is not None
            answer = await driver.worker.exchange(release=[claim_of(driver.claimed)])
        case Event.REAP:
            driver.clock.advance(LEASE_S + 1)
            answer = await jobs.reap(crash_note=CRASH_NOTE, limit=10)
        case Event.CANCEL:
            answer = await jobs.act(BulkAction.CANCEL, driver.selection, reason=REASON, limit=1)
        case Event.RETRY:
            answer = await jobs.act(BulkAction.RETRY, driver.selection, limit=1)
        case Event.RUN_NOW:
            answer = await jobs.act(BulkAction.RUN_NOW, driver.selection, limit=1)
        case Event.RESCHEDULE:
            answer = await jobs.act(BulkAction.RESCHEDULE, driver.selection, delay_s=HOUR, limit=1)
        case Event.RESUME:
            answer = await driver.store.events.send([EVENT])
        case Event.DELETE:
            answer = await jobs.act(BulkAction.DELETE, driver.selection, limit=1)
        case _:
            assert event in OUTCOMES, f"no call of the contracts does {event} to a stored job"
            how: dict[str, Any] = {"budgets": _NO_BUDGET} if no_budget else {}
            if progress:
                how["progress"] = StepProgress(stored=True)
            answer = await driver.finish(OUTCOMES[event], **how)
    return answer


EVENT: Final = NewEvent(name="paid", key="1")
PARKED: Final = Parked(Wait("paid", 0, (WaitTopic(topic_of("paid", "1")),)), None)
OUTCOMES: Final[dict[Event, AnyOutcome]] = {
    Event.DONE: Done(),
    Event.FAIL: Failed("no luck"),
    Event.DIE: Dead("hopeless"),
    Event.CRASH: Crashed("its child died"),
    Event.THROTTLE: Throttled(retry_after=30),
    Event.SNOOZE: Snooze(30),
    Event.SUSPEND: PARKED,
    Event.RESTART: Restarted(b"[2]"),
    Event.MISSING: Missing(),
}
_BUDGETED: Final = (Event.THROTTLE, Event.MISSING)

# Events without a call of their own: limits decide whether a pending job is held.
INDIRECT_EVENTS: Final = (Event.HOLD,)
EVENTS: Final = tuple(
    event for event in Event if event is not Event.ENQUEUE and event not in INDIRECT_EVENTS
)
