"""The memory store: row-wise rules over dictionaries."""

from collections.abc import MutableMapping, Sequence
from typing import TypeVar

from forge_jobs.backends.shared.rowwise.local_storage import LocalStorage
from forge_jobs.backends.shared.rowwise.store import LocalMaintenance, RowwiseStore
from forge_jobs.backends.shared.rowwise.tables import Tables
from forge_jobs.core.job import Enqueued, NewJob
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
