"""Pages in the order of a time: by end, due time and start."""

import pytest
from msgspec.structs import replace

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import SECOND
from forge_jobs.core.outcome import Dead
from forge_jobs.core.selection import BulkAction, Filter, Order, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import Process, enqueue


@pytest.mark.asyncio
class TestOrders:
    """``JobStore.page`` with an order."""

    async def test_lists_in_the_order_of_a_time(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        """Orders by due time, end and start: both ways, over queues, by cursor, within a filter."""
        for kind in "bdef":
            await enqueue(store, kind=kind)
        claimed = {job.kind: job for job in await worker.claim(free=4)}
        waiting = {kind: (await enqueue(store, kind=kind)).id for kind in "ac"}
        for kind in "badc":
            clock.advance(1)
            if kind in claimed:
                await worker.send_finishes(worker.build_finish(claimed[kind], Dead("x")))
            else:
                chosen = Selection(ids=(waiting[kind],))
                await store.jobs.act(BulkAction.CANCEL, chosen, limit=1)
        ended = clock.now()
        for kind, delay, queue in (("t", 300, "q"), ("u", 100, "r"), ("v", 200, "q")):
            await enqueue(store, kind=kind, delay_s=float(delay), queue=queue)
        await enqueue(store, kind="p")
        both = Filter(statuses=(JobStatus.DEAD, JobStatus.CANCELLED))
        dead = Filter(statuses=(JobStatus.DEAD,))
        later = Filter(statuses=(JobStatus.SCHEDULED,))
        running = Filter(statuses=(JobStatus.RUNNING,))
        expected = [
            (both, Order.ENDED_LAST, "cdab"),
            (both, Order.ENDED_FIRST, "badc"),
            (dead, Order.ENDED_LAST, "db"),
            (replace(both, kind="a"), Order.ENDED_LAST, "a"),
            (replace(both, finished_from=ended - SECOND), Order.ENDED_LAST, "cd"),
            (replace(both, finished_until=ended - SECOND), Order.ENDED_LAST, "ab"),
            (replace(both, finished_until=ended - SECOND), Order.ENDED_FIRST, "ba"),
            (replace(both, queue="none"), Order.ENDED_LAST, ""),
            (later, Order.DUE_FIRST, "uvt"),
            (later, Order.DUE_LAST, "tvu"),
            (replace(later, queue="q"), Order.DUE_FIRST, "vt"),
            (running, Order.STARTED_LAST, "fe"),
            (running, Order.STARTED_FIRST, "ef"),
        ]
        for wanted, order, kinds in expected:
            for size in (1, 2, 10):
                found, cursor = "", None
                for _ in range(10):
                    page = await store.jobs.page(wanted, limit=size, after=cursor, order=order)
                    found += "".join(job.kind for job in page.jobs)
                    cursor = page.next
                    if cursor is None:
                        break
                assert (found, cursor) == (kinds, None), (wanted, order, size)

    async def test_an_order_is_for_states_with_that_time(self, store: Store) -> None:
        for order, states in (
            (Order.ENDED_LAST, ()),
            (Order.ENDED_LAST, (JobStatus.DEAD, JobStatus.FAILED)),
            (Order.DUE_FIRST, (JobStatus.PENDING,)),
        ):
            with pytest.raises(BadOption, match="sort="):
                await store.jobs.page(Filter(statuses=states), limit=1, order=order)
        dead = Filter(statuses=(JobStatus.DEAD,))
        for cursor in ("nonsense", "", f"{store.tag:x}-1", f"{store.tag:x}-1-1~ended"):
            with pytest.raises(BadOption, match="cursor"):
                await store.jobs.page(dead, limit=1, after=cursor, order=Order.ENDED_LAST)
