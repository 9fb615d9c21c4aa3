"""A store over plain key-value storage: the proof that another store is one small folder.

It has no rule of its own: what jobs may do is decided by ``backends.shared.rowwise``.
"""

from collections.abc import MutableMapping
from typing import TypeVar

from forge_jobs.backends.shared.rowwise.local_storage import LocalStorage
from forge_jobs.backends.shared.rowwise.store import LocalMaintenance, RowwiseStore
from forge_jobs.backends.shared.rowwise.tables import Tables
from forge_jobs.backends.shared.rowwise.transaction import Transaction
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.store.store import Capabilities, Finding, Severity

from .storage import KeyValues
from .tables import KeyValueEntries, KeyValueTable

K = TypeVar("K")
V = TypeVar("V")


class KeyValueStorage(LocalStorage):
    """Tables over key-value storage, with its commit and rollback."""

    def __init__(self, clock: Clock, tag: int) -> None:
        self._tag = tag
        super().__init__(clock, self._empty_tables)

    def _empty_tables(self) -> Tables:
        values = self._values = KeyValues()

        def table(name: str, key: type[K], value: type[V]) -> MutableMapping[K, V]:
            return KeyValueTable(values, name, key, value)

        return Tables(table, KeyValueEntries(values), self._tag)

    def commit(self) -> None:
        self._values.commit()

    def roll_back(self, tx: Transaction) -> None:
        self._values.roll_back()


class KeyValueStore(RowwiseStore):
    """A store inside one process, over ``KeyValues``."""

    capabilities = Capabilities(
        name="key-value", durable=False, multi_process=False, sync_calls=True
    )

    def __init__(self, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY) -> None:
        super().__init__(KeyValueStorage(clock, entropy.bits(16)))
        self.maintenance = KeyValueMaintenance(self._storage)


class KeyValueMaintenance(LocalMaintenance):
    """``Maintenance``: there is no schema."""

    async def examine(self, *, deep: bool = True) -> list[Finding]:
        return [Finding(Severity.OK, "store", "key-value pairs in memory")]

    def describe(self) -> dict[str, str]:
        return {"backend": "key-value", "place": "this process"}
