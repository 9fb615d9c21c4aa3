"""The state machine: every rule calls the store, then the model, and compares all they hold.

The store acts first, because it chooses the keys of new jobs. After each call the machine reads
every record and the counts of the metrics, gives the model the keys of new records, applies the
call to the model, and compares.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis.stateful import RuleBasedStateMachine
from msgspec import structs

from forge_jobs.core.decide import Finish
from forge_jobs.core.events import WaitRecord
from forge_jobs.core.job import Claim, JobRecord, NewJob
from forge_jobs.core.limits import Declared
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import StepRecord
from forge_jobs.store.queues import QueueChange
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from . import compare, requests
from .exchanges import ExchangeModel
from .model import marker
from .requests import Asked, Step
from .state import Limit, Queue

T = TypeVar("T")
_RETAIN = {"done": 50.5, "dead": None, "cancelled": 20.5}


@dataclass
class StoreFactory:
    """What the examples of one test run on: one event loop for all, a fresh store for each.

    ``steps`` are those of the present example.
    """

    runner: asyncio.Runner
    make: Callable[[MovableClock], Store]
    clean: Callable[[], None] = lambda: None
    steps: list[Step] = field(default_factory=list)


def pick(rows: Sequence[T], index: int) -> T:
    return rows[index % len(rows)]


def shares_a_bucket(jobs: Sequence[NewJob]) -> bool:
    buckets = [job.limit_key or "" for job in jobs] + [job.lane or "" for job in jobs]
    named = [limit_bucket for limit_bucket in buckets if limit_bucket]
    return len(named) > len(set(named))


class StoreMachine(RuleBasedStateMachine):
    """One store, its clock and the model. ``factory`` is set by the test."""

    factory: StoreFactory

    def __init__(self) -> None:
        super().__init__()
        self.factory.steps = []
        self.clock = MovableClock()
        self.store = self.factory.make(self.clock)
        self.model = ExchangeModel()
        self.records: dict[int, JobRecord] = {}
        self.counts: dict[tuple[str, JobStatus], int] = {}
        self.waits: list[WaitRecord] = []
        self.histories: dict[int, list[StepRecord]] = {}
        self.owners: list[int] = []
        self.claims: list[tuple[int, Claim]] = []
        self.sent: list[tuple[int, Finish]] = []
        self.number = 0
        self.made = 0
        self.theme = "anything"
        self.compared = False
        self.model.now = self.clock.now()
        self.factory.runner.run(self._set_up())
        self.begin_work()

    def teardown(self) -> None:
        try:
            if self.compared:
                self.final_check()
        finally:
            self.factory.runner.run(self.store.close())
            self.factory.clean()

    def begin_work(self) -> None:
        """Set up what every example needs before its first step."""

    def final_check(self) -> None:
        """Comparisons at the end of an example."""

    async def _set_up(self) -> None:
        await self.store.open()
        retain = {f"retain_{status}_s": span for status, span in _RETAIN.items()}
        for name in requests.SET_UP:
            await self.store.queues.ensure(name, slots=10)
            await self.store.queues.change(name, QueueChange(**retain))
            kept = {JobStatus(status): span for status, span in _RETAIN.items()}
            self.model.queues[name] = Queue(retain_s=kept)
        declared = [
            Declared(name="task:fetch", concurrency=1, per="args.host"),
            Declared(name="task:cap", concurrency=1),
        ]
        await self.store.limits.publish(declared)
        for one in declared:
            self.model.limits[one.name] = Limit(one.concurrency, one.per is not None)

    # Calling and comparing.

    def ask(self, call: Awaitable[T]) -> T:
        """Call the store, then read its records and counts."""
        self.compared = False
        return self.factory.runner.run(self._ask(call))

    async def _ask(self, call: Awaitable[T]) -> T:
        answer = await call
        before = self.records
        self.records = await compare.records_of(self.store)
        self.counts = await compare.counts_of(self.store)
        self.waits = await self.store.events.waits(limit=1_000)
        self.histories = {
            job.key: await self.store.steps.page(job.id)
            for job in self.model.jobs.values()
            if job.key in self.records and (job.status is JobStatus.RUNNING or job.has_steps)
        }
        new = [record for key, record in self.records.items() if key not in before]
        self.model.fresh = {marker(record.payload): record for record in new}
        for key, record in self.records.items():
            compare.check_sound(record, before.get(key))
        return answer

    def check(self) -> None:
        """Compare the records and counts of the store with the model."""
        compare.check_records(self.model, self.records)
        compare.check_counts(self.model, self.counts)
        assert not self.model.fresh, "the store has jobs that the model has not"
        self.compared = True

    def new_job(self, asked: Asked) -> NewJob:
        self.made += 1
        return NewJob(**asked.under(self.theme), payload=b'{"n": %d}' % self.made)

    def carried(self, asked: Asked) -> NewJob:
        """A successor, with the lowest priority of its limit key: the contract does not say whether
        it is admitted before jobs of its key that wait already. For the same reason it is not
        stored as held: the finish that stores it may admit it."""
        return structs.replace(self.new_job(asked), priority=9, hold=False)

    # Storing.

    def enqueue(self, wanted: list[Asked]) -> None:
        """One call; or one per job where two share a bucket, because the contract does not say
        which of them is admitted."""
        jobs = [self.new_job(asked) for asked in wanted]
        if shares_a_bucket(jobs):
            for job in jobs:
                self.store_jobs([job])
        else:
            self.store_jobs(jobs)

    def store_jobs(self, jobs: list[NewJob]) -> None:
        answers = self.ask(self.store.jobs.enqueue(jobs))
        expected = [(job, known, job.status) for job, known in map(self.model.insert, jobs)]
        assert [(one.key, one.id, one.duplicate, one.status) for one in answers] == [
            (job.key, job.id, known, status) for job, known, status in expected
        ]
        self.check()
