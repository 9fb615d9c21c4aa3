"""Reading jobs: one by id, pages by filter, results for whoever waits."""

from collections.abc import Sequence

from forge_jobs.core import ids
from forge_jobs.core.errors import BadOption
from forge_jobs.core.job import JobRecord
from forge_jobs.core.select import Cursor, Filter, Page
from forge_jobs.store.jobs import Peek

from . import rows, sqlfiles
from .rows import KEY_MOST
from .session import Link, Server


class Looks:
    """Reads; nothing here changes anything."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._sql = sqlfiles.statements("looks", server.address.schema)
        self._newest = sqlfiles.statements("bulk", server.address.schema)["newest"]
        self._times = sqlfiles.statements("bulk", server.address.schema)["times"]
        self.tag = 0

    async def get(self, job_id: str) -> JobRecord | None:
        place = self._place(job_id)
        if place is None:
            return None
        row = await self._server.ask_row(self._sql["job"], str(place[0]), writes=False)
        if row is None or row["enqueued_at"] // 1000 != place[1]:
            return None
        return rows.record(row, self.tag)

    async def page(self, wanted: Filter, *, limit: int, after: Cursor | None) -> Page:
        async def work(link: Link) -> Page:
            keys, following = await self.newest(link, wanted, limit=limit, after=after)
            found = await link.fetch(self._sql["job"], _joined(keys)) if keys else ()
            return Page(tuple(rows.record(row, self.tag) for row in found), following)

        return await self._server.within(work, writes=False)

    async def peek(self, job_ids: Sequence[str]) -> list[Peek | None]:
        places = [self._place(job_id) for job_id in job_ids]
        keys = [place[0] for place in places if place is not None]
        if not keys:
            return [None] * len(places)
        found = await self._server.ask(self._sql["peek"], _joined(keys), writes=False)
        known = {(row[0], row[1] // 1000): row for row in found}
        answers: list[Peek | None] = []
        for place in places:
            row = None if place is None else known.get(place)
            answers.append(None if row is None else Peek(rows.status_of(row[2]), row[3], row[4]))
        return answers

    async def newest(
        self, link: Link, wanted: Filter, *, limit: int, after: Cursor | None
    ) -> tuple[list[int], Cursor | None]:
        """Keys of up to ``limit`` matching jobs, newest first, and the cursor to the rest."""
        most = max(limit, 1)
        below = KEY_MOST if after is None else self._position(after)
        found = await link.fetch(self._newest, *filter_values(wanted, below, most + 1))
        keys: list[int] = [row[0] for row in found[:most]]
        return keys, f"{self.tag:x}-{keys[-1]:x}" if len(found) > most else None

    async def keys_of(self, link: Link, job_ids: Sequence[str]) -> list[int | None]:
        """The keys behind public ids; None for one that is unknown, made up or not ours."""
        places = [self._place(job_id) for job_id in job_ids]
        keys = [place[0] for place in places if place is not None]
        known = {(row[0], row[1] // 1000) for row in await link.fetch(self._times, keys)}
        return [place[0] if place is not None and place in known else None for place in places]

    def _place(self, job_id: str) -> tuple[int, int] | None:
        place = ids.row_key(job_id, self.tag)
        return None if place is None or place[0] > KEY_MOST else place

    def _position(self, cursor: Cursor) -> int:
        tag, _, key = cursor.partition("-")
        try:
            if int(tag, 16) == self.tag and 0 <= int(key, 16) <= KEY_MOST:
                return int(key, 16)
        except ValueError:
            pass
        raise BadOption(f"cursor {cursor!r} was not given out by this store: begin without one")


def _joined(keys: Sequence[int]) -> str:
    return ",".join(map(str, keys))


def filter_values(wanted: Filter, below: int, limit: int) -> tuple[object, ...]:
    """The arguments of ``forge.newest``."""
    return (
        below, wanted.queue, wanted.kind,
        [status.value for status in wanted.statuses] if wanted.statuses else None,
        wanted.tag, wanted.dedupe_key, wanted.error, wanted.enqueued_from, wanted.enqueued_until,
        limit,
    )  # fmt: skip
