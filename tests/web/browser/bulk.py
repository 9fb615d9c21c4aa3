"""Many jobs, and a slow bulk operation on them."""

import asyncio

from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Acted, Filter, Selection
from forge_jobs.ops.actions import Action, JobActions, OnProgress, Store
from forge_jobs.ops.operations import Operation
from tests.web.browser.site import Site

MANY = 520


def enqueue_many(site: Site, tag: str) -> None:
    """Enqueue more scheduled jobs than an action reaches without a typed confirmation."""
    one = NewJob(kind="note", queue="quick", delay_s=3_600, tags=(tag,))
    site.enqueue(*([one] * MANY))


def delete_many(site: Site, tag: str) -> None:
    """Delete them, so that other tests do not see them."""
    site.run_on_store(lambda store: JobActions(store, actor="test").delete(by_tag(tag)))


def by_tag(tag: str) -> Selection:
    return Selection(filter=Filter(tag=tag))


class SlowJobActions(JobActions):
    """Actions that report one job every tenth of a second, as on a very large table."""

    async def perform(
        self, action: Action, selection: Selection, *, progress: OnProgress | None = None
    ) -> Acted:
        assert progress is not None
        for done in range(MANY // 3, MANY * 10):
            progress(Acted(changed=done))
            await asyncio.sleep(0.1)
        return Acted(changed=MANY)


def start_slow_operation(site: Site, tag: str) -> Operation:
    """Start an operation on the staff site that runs until it is stopped."""

    async def begin(store: Store) -> Operation:
        work = site.staff_app.operations
        slow = SlowJobActions(store, actor="web:otto")
        return await work.start(slow, Action.CANCEL, by_tag(tag), actor="web:otto")

    return site.run_on_store(begin)
