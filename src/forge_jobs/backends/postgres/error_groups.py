"""The contract for error groups on Postgres.

A transaction with failures appends entries. The roll-up merges them into one record per group, and
so does every reader first.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from forge_jobs.backends.shared import error_groups
from forge_jobs.core import ids
from forge_jobs.core.error_groups import (
    GIVES_WAY_AFTER,
    MAX_GROUPS,
    OTHER,
    ErrorGroup,
    FailureCount,
    bounded,
    merge_all,
    reopened,
    resolved,
)
from forge_jobs.core.failures import FailureGroup
from forge_jobs.core.instant import Instant

from . import rows, sql_files
from .connection.driver import Row
from .connection.server import Link, Server

_BATCH: Final = 1_000
_MAX_ROUNDS: Final = 50
_group_of = msgspec.json.Decoder(ErrorGroup).decode
_heading_of = msgspec.json.Decoder(tuple[str, str, str]).decode


def heading(group: FailureGroup) -> str:
    """Type, message and frame of a group, as an entry has them."""
    return rows.storable(rows.as_json((group.type, group.message, group.frame)))


class PostgresErrorGroups:
    """Error groups; see ``forge_jobs.store.error_groups``."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sql = sql_files.statements("error_groups", server.address.schema)
        self._now = sql_files.statements("jobs", server.address.schema)["store_now"]
        self.tag = 0

    async def seen(self, *, since: Instant = 0) -> list[ErrorGroup]:
        await self._merge_all()
        found = await self._server.ask(self._sql["seen"], since, writes=False)
        return [_group_of(row["record"]) for row in found]

    async def get(self, group_id: str) -> ErrorGroup | None:
        await self._merge_all()
        found = await self._server.ask(self._sql["load"], [group_id], writes=False)
        return _group_of(found[0]["record"]) if found else None

    async def resolve(self, group_ids: Sequence[str], *, by: str) -> int:
        await self._merge_all()
        row = await self._server.ask_row(self._now, self._server.store_clock.bind(), writes=False)
        assert row is not None
        return await self._change(group_ids, partial(resolved, at=row["now"], by=by))

    async def reopen(self, group_ids: Sequence[str]) -> int:
        return await self._change(group_ids, reopened)

    async def roll_up(self, *, limit: int) -> bool:
        if await self._server.ask_row(self._sql["any_entry"], writes=False) is None:
            return False
        return await self._merge(max(limit, 1)) >= limit

    async def purge(self, *, before: Instant, limit: int) -> int:
        return len(await self._server.ask(self._sql["purge"], before, max(limit, 0)))

    async def _merge_all(self) -> None:
        for _ in range(_MAX_ROUNDS):
            if not await self.roll_up(limit=_BATCH):
                return

    async def _merge(self, limit: int) -> int:
        async def work(link: Link) -> int:
            await link.fetch(self._sql["lock"])
            taken = await link.fetch(self._sql["take_entries"], limit)
            added = [self._failure(row) for row in taken]
            known = await self._load(link, {failure.group for failure in added})
            new = error_groups.new_groups(added, known)
            if new:
                row = await link.row(self._sql["size"])
                room = MAX_GROUPS - (0 if row is None else row["groups"])
                if room < new:
                    before = max(failure.at for failure in added) - GIVES_WAY_AFTER
                    room += len(await link.fetch(self._sql["purge"], before, new - max(room, 0)))
                added = bounded(added, known, room)
                if any(failure.group == OTHER for failure in added):
                    known |= await self._load(link, {OTHER})
            await self._put(link, merge_all(known, added))
            return len(taken)

        return await self._server.within(work)

    async def _change(
        self, group_ids: Sequence[str], change: Callable[[ErrorGroup], ErrorGroup]
    ) -> int:
        async def work(link: Link) -> int:
            await link.fetch(self._sql["lock"])
            found = await self._load(link, set(group_ids))
            await self._put(link, [change(group) for group in found.values()])
            return len(found)

        return await self._server.within(work)

    async def _load(self, link: Link, group_ids: set[str]) -> dict[str, ErrorGroup]:
        found = await link.fetch(self._sql["load"], sorted(group_ids))
        groups = [_group_of(row["record"]) for row in found]
        return {group.id: group for group in groups}

    async def _put(self, link: Link, groups: Sequence[ErrorGroup]) -> None:
        if groups:
            records = [
                {"id": group.id, "last_at": group.last_at, "record": rows.as_json(group)}
                for group in groups
            ]
            await link.fetch(self._sql["put"], rows.as_json(records))

    def _failure(self, row: Row) -> FailureCount:
        kind, message, frame = _heading_of(row["heading"])
        jobs = zip(row["jobs"], row["enqueued"], strict=True)
        return FailureCount(
            group=row["error_group"],
            type=kind,
            message=message,
            frame=frame,
            latest=error_groups.latest(row["latest"]),
            at=row["at"],
            kind=row["kind"],
            queue=row["queue"],
            worker=row["worker"] or "",
            version=row["version"] or "",
            count=row["failures"],
            jobs=tuple(ids.job_id(key, enqueued_at, self.tag) for key, enqueued_at in jobs),
        )
