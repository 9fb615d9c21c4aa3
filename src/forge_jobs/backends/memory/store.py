"""The memory store: row-wise rules over dictionaries."""

from collections.abc import MutableMapping
from typing import TypeVar

from forge_jobs.backends.shared.rowwise.local_storage import LocalStorage
from forge_jobs.backends.shared.rowwise.store import RowwiseStore
from forge_jobs.backends.shared.rowwise.tables import Tables
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.store.store import Capabilities, Finding, SchemaStatus, Severity, StoreSize

from .entries import SortedEntries

_SCHEMA = SchemaStatus(1, 1, 1)
K = TypeVar("K")
V = TypeVar("V")


class MemoryStore(RowwiseStore):
    """A store inside one process. Closing it deletes nothing; the end of the process does."""

    capabilities = Capabilities(name="memory", durable=False, multi_process=False, sync_calls=True)

    def __init__(self, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY) -> None:
        tag = entropy.bits(16)
        super().__init__(LocalStorage(clock, lambda: Tables(_table, SortedEntries(), tag)))
        self.maintenance = MemoryMaintenance(self._storage)


def _table(name: str, key: type[K], value: type[V]) -> MutableMapping[K, V]:
    return {}


class MemoryMaintenance:
    """``Maintenance`` on memory: there is no schema."""

    def __init__(self, storage: LocalStorage) -> None:
        self._storage = storage

    async def migrate(self) -> SchemaStatus:
        return _SCHEMA

    async def schema_status(self) -> SchemaStatus:
        return _SCHEMA

    async def drop(self) -> None:
        with self._storage.write() as tx:
            self._storage.clear()
            tx.tables = self._storage.tables
            tx.raise_control_version()

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

    async def size(self) -> StoreSize:
        return StoreSize(total=0)

    def describe(self) -> dict[str, str]:
        return {"backend": "memory", "place": "this process"}
