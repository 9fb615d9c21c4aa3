"""The job contract on Postgres: each method is one transaction."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from forge_jobs.backends.shared.error_groups import group_of
from forge_jobs.core.instant import NEVER, Instant
from forge_jobs.core.job import Claim, Enqueued, JobRecord, NewJob
from forge_jobs.core.selection import Acted, BulkAction, Cursor, Filter, Order, Page, Selection
from forge_jobs.store.job_upkeep import Promoted, Reaped
from forge_jobs.store.jobs import DeclaredClaim, Exchange, Exchanged, Owned, Peek, Retention

from . import rows, sql_files
from .actions import Actions, Asked
from .connection.server import Link, Server
from .enqueue import Enqueuer
from .error_groups import heading
from .exchange import Exchanger
from .notify.notifier import Notifier
from .queries import Queries


class PostgresJobs:
    """Stores jobs; see ``forge_jobs.store.jobs`` for what each method promises."""

    def __init__(
        self,
        server: Server,
        notifier: Notifier,
        enqueuer: Enqueuer,
        queries: Queries,
        declare_dead: Callable[[Link, Instant], Awaitable[None]],
    ) -> None:
        self._server = server
        self._notifier = notifier
        self._enqueuer = enqueuer
        self._queries = queries
        self._exchanger = Exchanger(server, notifier, enqueuer)
        self._actions = Actions(server, self.notify, queries)
        self._declare_dead = declare_dead
        self._sql = sql_files.statements("jobs", server.address.schema)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._enqueuer.enqueue(jobs)

    async def exchange(self, request: Exchange) -> Exchanged:
        return await self._exchanger.exchange(request)

    async def declare(self, owner: int, claims: Sequence[DeclaredClaim]) -> None:
        async def work(link: Link) -> None:
            for one in sorted(claims, key=lambda one: one.claim.key):
                values = rows.declared_values(one.job)
                await link.fetch(
                    self._sql["declare"], one.claim.key, one.claim.epoch, owner, *values
                )

        await self._server.within(work)

    async def route(self, queues: Mapping[str, str], *, limit: int) -> int:
        return await self._actions.route(queues, limit=limit)

    async def owned(self, owner: int) -> list[Owned]:
        found = await self._server.ask(self._sql["owned"], owner, writes=False)
        return [Owned(Claim(row[0], row[1]), row[2], row[3]) for row in found]

    async def reap(self, *, crash_note: str, limit: int) -> Reaped:
        note = rows.storable(crash_note)
        group = group_of(note, None)

        async def work(link: Link) -> tuple[Reaped, list[str]]:
            now = await self._now(link)
            await self._declare_dead(link, now)
            row = await link.row(self._sql["reap"], now, note, limit, group.id, heading(group))
            assert row is not None
            dead_letters = await self._exchanger.dead_letters(link, row["died"] or ())
            if dead_letters:
                await self._enqueuer.insert(link, dead_letters, now)
            queues_to_notify = [*(row["queues"] or ()), *(job.queue for job in dead_letters)]
            return Reaped(
                row["pending"], row["dead"], row["cancelled"], row["more"]
            ), queues_to_notify

        reaped, queues_to_notify = await self._server.within(work)
        await self.notify(queues_to_notify)
        return reaped

    async def promote(self, *, limit: int) -> Promoted:
        async def work(link: Link) -> tuple[Promoted, list[str]]:
            now = await self._now(link)
            row = await link.row(self._sql["expire"], now, limit)
            expired = 0 if row is None else row["expired"]
            if expired >= limit:
                return Promoted(0, expired, now, True), []
            promoted, queues_to_notify = 0, list[str]()
            for due in await link.fetch(self._sql["due_queues"]):
                room = limit - expired - promoted
                if due["run_at"] <= now and room > 0:
                    moved = await link.row(self._sql["promote_queue"], now, due["queue"], room)
                    assert moved is not None
                    promoted += moved["promoted"] + moved["expired"]
                    queues_to_notify.append(due["queue"])
            left = [row["run_at"] for row in await link.fetch(self._sql["due_queues"])]
            row = await link.row(self._sql["next_expiry"])
            if row is not None and row["at"] is not None:
                left.append(row["at"])
            next_due = min((at for at in left if at < NEVER), default=None)
            more = next_due is not None and next_due <= now
            return Promoted(promoted, expired, next_due, more), queues_to_notify

        answer, queues_to_notify = await self._server.within(work)
        await self.notify(queues_to_notify)
        return answer

    async def unhold(self, limit_key: str, *, limit: int) -> int:
        async def work(link: Link) -> tuple[int, list[str]]:
            held = await link.fetch(self._sql["held_in_bucket"], limit_key, max(limit, 0))
            if not held:
                return 0, []
            now = await self._now(link)
            row = await link.row(self._sql["make_pending"], now, [job[0] for job in held], False)
            return len(held), [] if row is None else row["queues"] or []

        moved, queues_to_notify = await self._server.within(work)
        await self.notify(queues_to_notify)
        return moved

    async def act(
        self,
        action: BulkAction,
        selection: Selection,
        *,
        reason: str = "",
        delay_s: float = 0.0,
        run_at: Instant | None = None,
        limit: int,
        after: Cursor | None = None,
    ) -> Acted:
        how = Asked(action, reason, delay_s, run_at)
        return await self._actions.act(how, selection, limit=limit, after=after)

    async def retry_from(self, job_id: str, step: str) -> bool:
        """See ``StepStore.retry_from``."""
        return await self._actions.retry_from(job_id, step)

    async def purge(self, keep: Retention, *, limit: int) -> int:
        return await self._actions.purge(keep, limit=limit)

    async def get(self, job_id: str) -> JobRecord | None:
        return await self._queries.get(job_id)

    async def page(
        self,
        filter: Filter,
        *,
        limit: int,
        after: Cursor | None = None,
        order: Order = Order.NEWEST,
    ) -> Page:
        return await self._queries.page(filter, limit=limit, after=after, order=order)

    async def peek(self, job_ids: Sequence[str]) -> list[Peek | None]:
        return await self._queries.peek(job_ids)

    async def notify(self, queues: Sequence[str]) -> None:
        """Notify workers of these queues, whose first claimable jobs may have changed."""
        self._exchanger.watermarks.forget(queues)
        await self._notifier.notify(queues)

    async def _now(self, link: Link) -> int:
        row = await link.row(self._sql["store_now"], self._server.store_clock.bind())
        assert row is not None
        return row["now"]
