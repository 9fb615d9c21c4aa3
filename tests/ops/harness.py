"""A store with operator actions, and methods that change its jobs as a worker would."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from forge_jobs.core.decide import Finish, decide, done
from forge_jobs.core.job import Claim, ClaimedJob, NewJob
from forge_jobs.core.outcome import Dead, Failed, Throttled
from forge_jobs.ops.actions import JobActions
from forge_jobs.ops.audit import AuditEntry
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock


class AuditRecorder:
    """An audit that collects its entries."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []

    async def record(self, entry: AuditEntry) -> None:
        self.entries.append(entry)


@dataclass
class StoreHarness:
    """Store, clock, actions and one registered worker."""

    store: Store
    clock: MovableClock
    audit: AuditRecorder = field(default_factory=AuditRecorder)
    owner: int | None = None
    number: int = 0

    @property
    def actions(self) -> JobActions:
        return JobActions(self.store, actor="ada", audit=self.audit, clock=self.clock)

    async def enqueue_jobs(self, *jobs: NewJob) -> list[str]:
        return [job.id for job in await self.store.jobs.enqueue(jobs)]

    async def enqueue(self, count: int, **fields: object) -> list[str]:
        wanted = {"kind": "send", "queue": "mail", **fields}
        return await self.enqueue_jobs(*(NewJob(**wanted) for _ in range(count)))

    async def register_worker(
        self, *queues: str, host_id: str = "01HOSTA", label: str = "web-worker-1-a"
    ) -> int:
        self.owner = await self.store.processes.register(
            NewProcess(host_id=host_id, label=label, queues=queues, pid=7, hostname="box")
        )
        return self.owner

    async def claim(self, queue: str = "mail", count: int = 1) -> Sequence[ClaimedJob]:
        return (await self._exchange(want=[Want(queue, count)])).claims

    async def succeed(self, job: ClaimedJob, result: bytes | None = None) -> None:
        await self._exchange(finish=[done(job, result=result, ran_s=2.0)])

    async def fail(self, job: ClaimedJob, message: str = "boom") -> None:
        await self._exchange(finish=[decide(job, Failed(message), now=self.clock.now())])

    async def kill(
        self, job: ClaimedJob, message: str = "hopeless", traceback: str | None = None
    ) -> None:
        outcome = Dead(message)
        outcome.traceback = traceback
        await self._exchange(finish=[decide(job, outcome, now=self.clock.now())])

    async def finish(self, finish: Finish) -> None:
        await self._exchange(finish=[finish])

    async def throttle(self, job: ClaimedJob, seconds: float) -> None:
        await self._exchange(finish=[decide(job, Throttled(seconds), now=self.clock.now())])

    async def release(self, job: ClaimedJob) -> None:
        await self._exchange(release=[Claim(job.key, job.epoch)])

    async def dead_jobs(self, count: int, **fields: object) -> list[str]:
        """Enqueue jobs that a worker claims and finishes as dead."""
        ids = await self.enqueue(count, **fields)
        if self.owner is None:
            await self.register_worker("mail", "video")
        for job in await self.claim(str(fields.get("queue", "mail")), count):
            await self.kill(job)
        return ids

    async def _exchange(self, **fields: object):
        assert self.owner is not None, "hire a worker first"
        self.number += 1
        request = Exchange(owner=self.owner, number=self.number, **fields)  # type: ignore[arg-type]
        return await self.store.jobs.exchange(request)
