"""What people do to many jobs at once: cancel, retry, run now, delete; and what time removes.

A filter is walked downwards by key, at most ``limit`` matching rows per call, each call in one
transaction. Rows are locked before they are judged, in the order of their keys.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.selection import Acted, Cursor, Selection
from forge_jobs.core.status import RETRYABLE, JobStatus
from forge_jobs.store.jobs import Retention

from . import rows, sql_files
from .connection.driver import Row
from .connection.server import Link, Server
from .notify.notifier import EVERYBODY, Notifier
from .queries import Queries

_DELETED: Final = "deleted while it was running"
_LIMIT_S: Final = 60.0
_DUE_LATER: Final = (JobStatus.SCHEDULED, JobStatus.FAILED)


class _Deed:
    """What one call did, and whom to wake for it."""

    def __init__(self, now: Instant) -> None:
        self.now = now
        self.changed = 0
        self.requested = 0
        self.queues: list[str] = []


Act = Callable[[Link, _Deed, Sequence[int]], Awaitable[None]]


class Bulk:
    """Actions on selections of jobs."""

    def __init__(self, server: Server, bell: Notifier, looks: Queries) -> None:
        self._server = server
        self._bell = bell
        self._looks = looks
        self._sql = {
            **sql_files.statements("jobs", server.address.schema),
            **sql_files.statements("bulk", server.address.schema),
        }

    async def cancel(
        self, selection: Selection, *, reason: str, limit: int, after: Cursor | None
    ) -> Acted:
        why = rows.storable(reason)

        async def act(link: Link, deed: _Deed, keys: Sequence[int]) -> None:
            waiting, running = _split(await link.fetch(self._sql["lock_live"], keys))
            if waiting:
                ended = [row["id"] for row in waiting]
                await link.fetch(self._sql["cancel_waiting"], deed.now, ended, why)
                deed.changed += len(waiting)
            await self._request_stop(link, deed, running, why)

        return await self._act(selection, act, limit, after)

    async def retry(self, selection: Selection, *, limit: int, after: Cursor | None) -> Acted:
        async def act(link: Link, deed: _Deed, keys: Sequence[int]) -> None:
            live = await link.fetch(self._sql["lock_live"], keys)
            ended = await link.fetch(self._sql["lock_terminal"], keys)
            able = [row for row in (*live, *ended) if rows.status_of(row["status"]) in RETRYABLE]
            chosen = await self._with_keys(link, able, keys)
            if chosen:
                row = await link.row(self._sql["retry_jobs"], deed.now, chosen)
                deed.queues += [] if row is None else row["queues"] or ()
                deed.changed += len(chosen)

        return await self._act(selection, act, limit, after)

    async def run_now(self, selection: Selection, *, limit: int, after: Cursor | None) -> Acted:
        async def act(link: Link, deed: _Deed, keys: Sequence[int]) -> None:
            live = await link.fetch(self._sql["lock_live"], keys)
            due = [row["id"] for row in live if rows.status_of(row["status"]) in _DUE_LATER]
            if due:
                row = await link.row(self._sql["make_pending"], deed.now, due, True)
                deed.queues += [] if row is None else row["queues"] or ()
                deed.changed += len(due)

        return await self._act(selection, act, limit, after)

    async def delete(self, selection: Selection, *, limit: int, after: Cursor | None) -> Acted:
        async def act(link: Link, deed: _Deed, keys: Sequence[int]) -> None:
            waiting, running = _split(await link.fetch(self._sql["lock_live"], keys))
            ended = await link.fetch(self._sql["lock_terminal"], keys)
            gone = sorted(row["id"] for row in (*waiting, *ended))
            if gone:
                await link.fetch(self._sql["delete_jobs"], deed.now, gone)
                deed.changed += len(gone)
            await self._request_stop(link, deed, running, _DELETED)

        return await self._act(selection, act, limit, after)

    async def purge(self, keep: Retention, *, limit: int) -> int:
        """Remove ended jobs past their time, and lapsed keys."""

        async def work(link: Link) -> int:
            now = await self._now(link)
            await link.fetch(self._sql["delete_lapsed_keys"], now, max(limit, 1_000))
            gone = 0
            for line in await link.fetch(self._sql["history_groups"]):
                if keep.queue not in (None, line["queue"]):
                    continue
                kept_s = _kept_s(line, keep)
                if kept_s is None or gone >= limit:
                    continue
                found = await link.fetch(
                    self._sql["past_retention"], line["queue"], line["status"],
                    now - round(kept_s * SECOND), now, limit - gone,
                )  # fmt: skip
                if found:
                    await link.fetch(self._sql["delete_jobs"], now, sorted(row[0] for row in found))
                    gone += len(found)
            return gone

        return await self._server.within(work, limit_s=_LIMIT_S)

    async def _act(self, selection: Selection, act: Act, limit: int, after: Cursor | None) -> Acted:
        if selection.ids and selection.filter is not None:
            raise BadOption("a selection takes ids or a filter, not both")

        async def work(link: Link) -> tuple[Acted, _Deed]:
            following: Cursor | None = None
            missing = 0
            if selection.filter is None:
                found = await self._looks.keys_of(link, list(dict.fromkeys(selection.ids)))
                keys = [key for key in found if key is not None]
                missing = len(found) - len(keys)
            else:
                walked = await self._looks.newest(link, selection.filter, limit=limit, after=after)
                keys, following = walked.keys, self._looks.cursor(walked)
            deed = _Deed(await self._now(link))
            if keys:
                await act(link, deed, keys)
            skipped = len(keys) - deed.changed - deed.requested
            acted = Acted(
                changed=deed.changed,
                requested=deed.requested,
                skipped=skipped,
                missing=missing,
                next=following,
            )
            return acted, deed

        acted, deed = await self._server.within(work, limit_s=_LIMIT_S)
        await self._bell.notify([EVERYBODY] if deed.requested else deed.queues)
        return acted

    async def _request_stop(
        self, link: Link, deed: _Deed, running: Sequence[Row], reason: str
    ) -> None:
        if not running:
            return
        jobs, owners = [row["id"] for row in running], [row["owner"] for row in running]
        await link.fetch(self._sql["request_cancel"], jobs, owners, deed.now, reason)
        await link.fetch(self._sql["raise_control_version"])
        deed.requested += len(running)

    async def _with_keys(self, link: Link, able: Sequence[Row], order: Sequence[int]) -> list[int]:
        """Those that need no dedupe key or could take theirs; of equals the first in ``order``."""
        place = {key: n for n, key in enumerate(order)}
        chosen = [row["id"] for row in able if row["dedupe_key"] is None]
        keyed = [row for row in able if row["dedupe_key"] is not None]
        keyed.sort(key=lambda row: (row["kind"], row["dedupe_key"], place[row["id"]]))
        taken: set[tuple[str, str]] = set()
        for row in keyed:
            name = (row["kind"], row["dedupe_key"])
            if name not in taken:
                got = await link.row(self._sql["take_dedupe_key"], *name, row["id"])
                if got is not None and got["taken"]:
                    taken.add(name)
                    chosen.append(row["id"])
        return sorted(chosen)

    async def _now(self, link: Link) -> Instant:
        row = await link.row(self._sql["store_now"], self._server.present.bind())
        assert row is not None
        return row["now"]


def _split(live: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """(waiting, running)."""
    running = [row for row in live if row["status"] == JobStatus.RUNNING.value]
    return [row for row in live if row["status"] != JobStatus.RUNNING.value], running


def _kept_s(line: Row, keep: Retention) -> float | None:
    status: Any = rows.status_of(line["status"])
    by_settings = line["known"] and keep.queue is None
    if status is JobStatus.DONE:
        return line["retain_done_s"] if by_settings else keep.done_s
    if status is JobStatus.DEAD:
        return line["retain_dead_s"] if by_settings else keep.dead_s
    return line["retain_cancelled_s"] if by_settings else keep.cancelled_s
