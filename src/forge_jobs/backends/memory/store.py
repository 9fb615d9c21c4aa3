"""The memory store: row-wise rules over dictionaries."""

from collections.abc import MutableMapping, Sequence
from typing import TypeVar

from forge_jobs.backends.shared.rowwise import steps
from forge_jobs.backends.shared.rowwise.local_storage import LocalStorage
from forge_jobs.backends.shared.rowwise.store import LocalMaintenance, RowwiseStore
from forge_jobs.backends.shared.rowwise.tables import Tables
from forge_jobs.core.events import NewEvent, SentEvent
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.steps import StepWrite
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.store.store import Capabilities, Finding, Severity

from .entries import SortedEntries
from .user_transactions import JoinedTransaction, UserTransactions

K = TypeVar("K")
V = TypeVar("V")


class MemoryStore(RowwiseStore):
    """A store inside one process. Closing it deletes nothing; the end of the process does."""

    capabilities = Capabilities(
        name="memory",
        durable=False,
        multi_process=False,
        sync_calls=True,
        transactions=("sqlalchemy", "on_commit"),
    )

    def __init__(self, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY) -> None:
        tag = entropy.bits(16)
        super().__init__(LocalStorage(clock, lambda: Tables(_table, SortedEntries(), tag)))
        self.maintenance = MemoryMaintenance(self._storage)
        self._transactions = UserTransactions(self._storage)

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._enqueue_joined(self._transactions.join(transaction), jobs)

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._enqueue_joined(await self._transactions.ajoin(transaction), jobs)

    def _enqueue_joined(
        self, joined: JoinedTransaction | None, jobs: Sequence[NewJob]
    ) -> list[Enqueued]:
        if joined is None:
            return self.enqueue_sync(jobs)
        return [joined.reserve(job) for job in jobs]

    def send_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        return self._send_joined(self._transactions.join(transaction), events)

    async def asend_in(self, transaction: object, events: Sequence[NewEvent]) -> list[SentEvent]:
        return self._send_joined(await self._transactions.ajoin(transaction), events)

    def _send_joined(
        self, joined: JoinedTransaction | None, events: Sequence[NewEvent]
    ) -> list[SentEvent]:
        if joined is None:
            return self.events.send_sync(events)
        return [joined.send(event) for event in events]

    def store_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        self._store_step_joined(self._transactions.join(transaction), owner, step)

    async def astore_step_in(self, transaction: object, owner: int, step: StepWrite) -> None:
        self._store_step_joined(await self._transactions.ajoin(transaction), owner, step)

    def _store_step_joined(
        self, joined: JoinedTransaction | None, owner: int, step: StepWrite
    ) -> None:
        if joined is None:
            with self._storage.write() as tx:
                steps.store_in(tx, owner, step)
        else:
            joined.store_step(owner, step)


def _table(name: str, key: type[K], value: type[V]) -> MutableMapping[K, V]:
    return {}


class MemoryMaintenance(LocalMaintenance):
    """``Maintenance`` on memory: there is no schema."""

    async def examine(self, *, deep: bool = True) -> list[Finding]:
        with self._storage.read():
            jobs = len(self._storage.tables.jobs)
        return [
            Finding(Severity.OK, "store", f"in memory, {jobs} jobs"),
            Finding(
                Severity.WARNING,
                "durability",
                "jobs in memory are lost when the process ends",
                "use sqlite:///forge.db",
            ),
        ]

    def describe(self) -> dict[str, str]:
        return {"backend": "memory", "place": "this process"}
