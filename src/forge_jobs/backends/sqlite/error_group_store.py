"""The contract for error groups on SQLite."""

from collections.abc import Sequence
from functools import partial

from forge_jobs.core.error_groups import ErrorGroup
from forge_jobs.core.instant import Instant

from . import error_groups
from .error_groups import StoredGroups
from .io.reader import Reader
from .io.writer import Writer


class SqliteErrorGroups:
    """Error groups; see ``forge_jobs.store.error_groups``."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer = writer
        self._reader = reader

    async def seen(self, *, since: Instant = 0) -> list[ErrorGroup]:
        return await self._reader.call(partial(error_groups.seen, since))

    async def get(self, group_id: str) -> ErrorGroup | None:
        return await self._reader.call(partial(error_groups.get, group_id))

    async def resolve(self, group_ids: Sequence[str], *, by: str) -> int:
        return await self._writer.call(
            lambda tx: error_groups.resolve(tx.execute, group_ids, tx.now, by)
        )

    async def reopen(self, group_ids: Sequence[str]) -> int:
        return await self._writer.call(lambda tx: error_groups.reopen(tx.execute, group_ids))

    async def roll_up(self, *, limit: int) -> bool:
        return False

    async def purge(self, *, before: Instant, limit: int) -> int:
        return await self._writer.call(lambda tx: StoredGroups(tx.execute).purge(before, limit))
