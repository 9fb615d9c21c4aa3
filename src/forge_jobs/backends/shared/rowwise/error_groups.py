"""The contract for error groups of a row-wise store: each method is one transaction."""

from collections.abc import Sequence

from forge_jobs.core.error_groups import ErrorGroup, reopened, resolved
from forge_jobs.core.instant import Instant

from .group_table import RowGroupTable
from .storage import Storage


class RowwiseErrorGroups:
    """``ErrorGroupStore`` row by row; see ``forge_jobs.store.error_groups``."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def seen(self, *, since: Instant = 0) -> list[ErrorGroup]:
        with self._storage.read():
            groups = self._storage.tables.error_groups.values()
            found = [group for group in groups if group.last_at >= since]
        return sorted(found, key=lambda group: (-group.last_at, group.id))

    async def get(self, group_id: str) -> ErrorGroup | None:
        with self._storage.read():
            return self._storage.tables.error_groups.get(group_id)

    async def resolve(self, group_ids: Sequence[str], *, by: str) -> int:
        with self._storage.write() as tx:
            table = RowGroupTable(tx.tables)
            found = table.load(group_ids)
            table.put([resolved(group, at=tx.now, by=by) for group in found.values()])
            return len(found)

    async def reopen(self, group_ids: Sequence[str]) -> int:
        with self._storage.write() as tx:
            table = RowGroupTable(tx.tables)
            found = table.load(group_ids)
            table.put([reopened(group) for group in found.values()])
            return len(found)

    async def roll_up(self, *, limit: int) -> bool:
        return False

    async def purge(self, *, before: Instant, limit: int) -> int:
        with self._storage.write() as tx:
            return RowGroupTable(tx.tables).purge(before, limit)
