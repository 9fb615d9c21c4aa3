"""A worker process as a store sees it, and helpers that read a store."""

from collections.abc import Sequence
from typing import Any

from forge_jobs.core.decide import DEFAULT_BUDGETS, Budgets, Finish, StepProgress, decide
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import Claim, ClaimedJob, Enqueued, JobRecord, NewJob
from forge_jobs.core.outcome import AnyOutcome, Done
from forge_jobs.core.retry import DEFAULT_BACKOFF, Backoff
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import StepWrite
from forge_jobs.store.jobs import Exchange, Exchanged, Note, Verdict, WaitCheck, Want
from forge_jobs.store.processes import HeartbeatReply, NewProcess, ProcessStats
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

LEASE_S = 15.0


def new_job(**options: Any) -> NewJob:
    """A request for a job, by default of kind ``work`` in the queue ``q``."""
    fields: dict[str, Any] = {"kind": "work", "queue": "q", **options}
    return NewJob(**fields)


async def enqueue(store: Store, **options: Any) -> Enqueued:
    """Store one job."""
    [answer] = await store.jobs.enqueue([new_job(**options)])
    return answer


async def record(store: Store, job_id: str) -> JobRecord:
    """The record of a job, which must exist."""
    found = await store.jobs.get(job_id)
    assert found is not None
    return found


async def all_jobs(store: Store) -> list[JobRecord]:
    """All jobs, oldest first."""
    jobs: list[JobRecord] = []
    cursor = None
    while True:
        page = await store.jobs.page(Filter(), limit=100, after=cursor)
        jobs.extend(page.jobs)
        cursor = page.next
        if cursor is None:
            return jobs[::-1]


async def job_counts(store: Store) -> dict[tuple[str, JobStatus], int]:
    """The counters that are not 0."""
    return {(row.queue, row.status): row.jobs for row in await store.metrics.counts() if row.jobs}


class Process:
    """One registered process. Every exchange has the next number."""

    def __init__(self, store: Store, clock: MovableClock, key: int, host_id: str) -> None:
        self.store = store
        self.clock = clock
        self.key = key
        self.host_id = host_id
        self.number = 0

    @classmethod
    async def register(
        cls,
        store: Store,
        clock: MovableClock,
        *,
        host_id: str = "host-1",
        queues: tuple[str, ...] = ("q",),
        lease_s: float = LEASE_S,
        replaces: str | None = None,
    ) -> "Process":
        """Register a process."""
        registration = NewProcess(
            host_id=host_id,
            label=f"label of {host_id}",
            queues=queues,
            pid=4711,
            hostname="box",
            version="1.2.3",
            lease_s=lease_s,
        )
        key = await store.processes.register(registration, replaces=replaces)
        return cls(store, clock, key, host_id)

    async def exchange(
        self,
        *,
        finish: Sequence[Finish] = (),
        release: Sequence[Claim] = (),
        started: Sequence[Claim] = (),
        notes: Sequence[Note] = (),
        want: Sequence[Want] = (),
        timed: bool = True,
        steps: Sequence[StepWrite] = (),
        waits: Sequence[WaitCheck] = (),
    ) -> Exchanged:
        """One exchange."""
        self.number += 1
        return await self.store.jobs.exchange(
            Exchange(
                owner=self.key,
                number=self.number,
                finish=finish,
                release=release,
                started=started,
                notes=notes,
                want=want,
                timed=timed,
                steps=steps,
                waits=waits,
            )
        )

    async def claim(self, queue: str = "q", free: int = 1, prefetch: int = 0) -> list[ClaimedJob]:
        """Claim jobs of one queue."""
        answer = await self.exchange(want=[Want(queue, free, prefetch)])
        return list(answer.claims)

    async def claim_one(self, queue: str = "q") -> ClaimedJob:
        """Claim one job, which must exist."""
        [job] = await self.claim(queue)
        return job

    async def send_finishes(self, *finishes: Finish) -> list[Verdict]:
        """An exchange with finishes alone; their verdicts."""
        return list((await self.exchange(finish=finishes)).verdicts)

    async def finish(self, job: ClaimedJob, outcome: AnyOutcome, **how: Any) -> Verdict:
        """Finish one claim as the engine would; the verdict."""
        [verdict] = await self.send_finishes(self.build_finish(job, outcome, **how))
        return verdict

    def build_finish(
        self,
        job: ClaimedJob,
        outcome: AnyOutcome | None = None,
        *,
        backoff: Backoff = DEFAULT_BACKOFF,
        budgets: Budgets = DEFAULT_BUDGETS,
        result: bytes | None = None,
        jobs: tuple[NewJob, ...] = (),
        ran_s: float = 0.0,
        waited_s: float = 0.0,
        progress: StepProgress | None = None,
    ) -> Finish:
        """The finish that the engine would send for an outcome, by default Done."""
        return decide(
            job,
            outcome or Done(),
            now=self.clock.now(),
            backoff=backoff,
            budgets=budgets,
            result=result,
            jobs=jobs,
            ran_s=ran_s,
            waited_s=waited_s,
            progress=progress,
        )

    async def heartbeat(self) -> HeartbeatReply:
        """Renew the lease."""
        return await self.store.processes.heartbeat(self.key, ProcessStats())

    async def advance(self, seconds: float) -> Instant:
        """Advance the clock and renew the lease; the new time."""
        self.clock.advance(seconds)
        assert (await self.heartbeat()).alive
        return self.clock.now()


def claim_of(job: ClaimedJob) -> Claim:
    """The claim of a claimed job."""
    return Claim(job.key, job.epoch)
