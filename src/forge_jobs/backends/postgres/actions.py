"""The actions of operators on selections of jobs, and the purge of ended jobs.

A filter is scanned in descending order of keys, at most ``limit`` matching rows per call, each call
in one transaction. Rows are locked in the order of their keys before an action reads their state.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from forge_jobs.core.errors import BadOption, KeyTaken, NotFound
from forge_jobs.core.instant import SECOND, Instant, due_at
from forge_jobs.core.selection import Acted, BulkAction, Cursor, Selection
from forge_jobs.core.status import RETRYABLE, WAITING, JobStatus
from forge_jobs.core.steps import shown_step
from forge_jobs.store.jobs import Retention

from . import rows, sql_files
from .connection.driver import Row
from .connection.server import Link, Server
from .notify.notifier import EVERYBODY
from .queries import Queries

_DELETED: Final = "deleted while it was running"
_LIMIT_S: Final = 60.0
_DUE_LATER: Final = (JobStatus.SCHEDULED, JobStatus.FAILED, JobStatus.SUSPENDED)


class Asked(NamedTuple):
    """An action and what it needs: ``reason`` of a cancel, the new time of a reschedule."""

    action: BulkAction
    reason: str
    delay_s: float
    run_at: Instant | None


class _Effect:
    """What one call did: counts, and the queues to notify."""

    def __init__(self, now: Instant) -> None:
        self.now = now
        self.changed = 0
        self.requested = 0
        self.key_taken = 0
        self.queues: list[str] = []


class Actions:
    """Bulk actions and the purge. ``notify`` wakes the workers of queues whose first claimable jobs
    may have changed."""

    def __init__(
        self,
        server: Server,
        notify: Callable[[Sequence[str]], Awaitable[None]],
        queries: Queries,
    ) -> None:
        self._server = server
        self._notify = notify
        self._queries = queries
        self._sql = {
            **sql_files.statements("jobs", server.address.schema),
            **sql_files.statements("bulk", server.address.schema),
            **sql_files.statements("steps", server.address.schema),
        }

    async def act(
        self,
        asked: Asked,
        selection: Selection,
        *,
        limit: int,
        after: Cursor | None,
    ) -> Acted:
        if selection.ids and selection.filter is not None:
            raise BadOption("a selection takes ids or a filter, not both")

        async def work(link: Link) -> tuple[Acted, _Effect]:
            missing, following = 0, None
            if selection.filter is None:
                found = await self._queries.keys_of(link, list(dict.fromkeys(selection.ids)))
                keys = [key for key in found if key is not None]
                missing = len(found) - len(keys)
            else:
                page = await self._queries.newest(link, selection.filter, limit=limit, after=after)
                keys, following = page.keys, self._queries.cursor(page)
            effect = _Effect(await self._now(link))
            if keys:
                await self._apply(link, asked, effect, keys)
            acted = Acted(
                changed=effect.changed,
                requested=effect.requested,
                skipped=len(keys) - effect.changed - effect.requested,
                key_taken=effect.key_taken,
                missing=missing,
                next=following,
            )
            return acted, effect

        acted, effect = await self._server.within(work, limit_s=_LIMIT_S)
        await self._notify([EVERYBODY] if effect.requested else effect.queues)
        return acted

    async def _apply(self, link: Link, asked: Asked, effect: _Effect, keys: Sequence[int]) -> None:
        match asked.action:
            case BulkAction.CANCEL:
                await self._cancel(link, effect, keys, rows.storable(asked.reason))
            case BulkAction.RETRY:
                await self._retry(link, effect, keys)
            case BulkAction.RUN_NOW:
                await self._run_now(link, effect, keys)
            case BulkAction.RESCHEDULE:
                run_at = due_at(effect.now, delay_s=asked.delay_s, run_at=asked.run_at)
                await self._reschedule(link, effect, keys, run_at)
            case BulkAction.DELETE:
                await self._delete(link, effect, keys)

    async def _cancel(self, link: Link, effect: _Effect, keys: Sequence[int], reason: str) -> None:
        waiting, running = _split(await link.fetch(self._sql["lock_live"], keys))
        if waiting:
            ended = [row["id"] for row in waiting]
            await link.fetch(self._sql["cancel_waiting"], effect.now, ended, reason)
            effect.changed += len(waiting)
        await self._request_cancel(link, effect, running, reason)

    async def _retry(self, link: Link, effect: _Effect, keys: Sequence[int]) -> None:
        live = await link.fetch(self._sql["lock_live"], keys)
        ended = await link.fetch(self._sql["lock_terminal"], keys)
        able = [row for row in (*live, *ended) if rows.status_of(row["status"]) in RETRYABLE]
        chosen = await self._with_dedupe_key(link, able, keys)
        effect.key_taken = len(able) - len(chosen)
        if chosen:
            row = await link.row(self._sql["retry_jobs"], effect.now, chosen)
            effect.queues += [] if row is None else row["queues"] or ()
            effect.changed += len(chosen)

    async def retry_from(self, job_id: str, step: str) -> bool:
        """Delete a step with all that began at the same time or later, then retry the job."""

        async def work(link: Link) -> _Effect:
            [key] = await self._queries.keys_of(link, [job_id])
            if key is None:
                raise NotFound(f"there is no job {job_id}")
            effect = _Effect(await self._now(link))
            live = await link.fetch(self._sql["lock_live"], [key])
            ended = await link.fetch(self._sql["lock_terminal"], [key])
            if any(rows.status_of(row["status"]) in RETRYABLE for row in (*live, *ended)):
                began = await link.row(self._sql["step_began"], key, step)
                if began is None:
                    raise NotFound(f"job {job_id} has no step {shown_step(step)!r}")
                await link.fetch(self._sql["delete_steps_from"], key, began["began_at"])
                await self._retry(link, effect, [key])
                if effect.key_taken:
                    raise KeyTaken(f"another live job holds the dedupe key of job {job_id}")
            return effect

        effect = await self._server.within(work)
        await self._notify(effect.queues)
        return bool(effect.changed)

    async def _run_now(self, link: Link, effect: _Effect, keys: Sequence[int]) -> None:
        live = await link.fetch(self._sql["lock_live"], keys)
        due = [row["id"] for row in live if rows.status_of(row["status"]) in _DUE_LATER]
        if due:
            row = await link.row(self._sql["make_pending"], effect.now, due, True)
            effect.queues += [] if row is None else row["queues"] or ()
            effect.changed += len(due)

    async def _reschedule(
        self, link: Link, effect: _Effect, keys: Sequence[int], run_at: Instant
    ) -> None:
        live = await link.fetch(self._sql["lock_live"], keys)
        waiting = [row for row in live if rows.status_of(row["status"]) in WAITING]
        if waiting:
            jobs = [row["id"] for row in waiting]
            await link.fetch(self._sql["count_rescheduled"], effect.now, jobs)
            row = await link.row(self._sql["reschedule_jobs"], jobs, run_at)
            effect.queues += [] if row is None else row["queues"] or ()
            # Those that were pending or held gave up their slots.
            row = await link.row(self._sql["admit_buckets_of_jobs"], effect.now, jobs)
            effect.queues += [] if row is None else row["queues"] or ()
            effect.changed += len(waiting)

    async def _delete(self, link: Link, effect: _Effect, keys: Sequence[int]) -> None:
        waiting, running = _split(await link.fetch(self._sql["lock_live"], keys))
        ended = await link.fetch(self._sql["lock_terminal"], keys)
        gone = sorted(row["id"] for row in (*waiting, *ended))
        if gone:
            await link.fetch(self._sql["delete_jobs"], effect.now, gone)
            effect.changed += len(gone)
        await self._request_cancel(link, effect, running, _DELETED)

    async def _request_cancel(
        self, link: Link, effect: _Effect, running: Sequence[Row], reason: str
    ) -> None:
        if not running:
            return
        jobs, owners = [row["id"] for row in running], [row["owner"] for row in running]
        await link.fetch(self._sql["request_cancel"], jobs, owners, effect.now, reason)
        await link.fetch(self._sql["raise_control_version"])
        effect.requested += len(running)

    async def _with_dedupe_key(
        self, link: Link, able: Sequence[Row], order: Sequence[int]
    ) -> list[int]:
        """The jobs without a dedupe key, and those that could take theirs; of several with one key
        the first in ``order``."""
        position = {key: index for index, key in enumerate(order)}
        chosen = [row["id"] for row in able if row["dedupe_key"] is None]
        keyed = [row for row in able if row["dedupe_key"] is not None]
        keyed.sort(key=lambda row: (row["kind"], row["dedupe_key"], position[row["id"]]))
        taken: set[tuple[str, str]] = set()
        for row in keyed:
            name = (row["kind"], row["dedupe_key"])
            if name not in taken:
                got = await link.row(self._sql["take_dedupe_key"], *name, row["id"])
                if got is not None and got["taken"]:
                    taken.add(name)
                    chosen.append(row["id"])
        return sorted(chosen)

    async def purge(self, keep: Retention, *, limit: int) -> int:
        """Delete ended jobs past their retention, lapsed dedupe keys, events that are kept no
        longer, and stale cancel requests."""

        async def work(link: Link) -> int:
            now = await self._now(link)
            await link.fetch(self._sql["delete_lapsed_keys"], now, max(limit, 1_000))
            await link.fetch(self._sql["delete_ended_events"], now, max(limit, 1_000))
            await link.fetch(self._sql["delete_stale_requests"])
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

    async def _now(self, link: Link) -> Instant:
        row = await link.row(self._sql["store_now"], self._server.store_clock.bind())
        assert row is not None
        return row["now"]


def _split(live: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Waiting or suspended rows, and running ones."""
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
