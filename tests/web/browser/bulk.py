"""Many jobs, and bulk work on them that takes long enough to be looked at."""

import asyncio

from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Acted, Filter, Selection
from forge_jobs.ops.actions import Action, JobActions, OnProgress, Store
from forge_jobs.ops.operations import Operation
from tests.web.browser.site import Site

MANY = 520


def plant(site: Site, tag: str) -> None:
    """More jobs for later than a click may reach."""
    one = NewJob(kind="note", queue="quick", delay_s=3_600, tags=(tag,))
    site.enqueue(*([one] * MANY))


def uproot(site: Site, tag: str) -> None:
    """Other tests shall not meet them."""
    site.ask(lambda store: JobActions(store, actor="test").delete(tagged(tag)))


def tagged(tag: str) -> Selection:
    return Selection(filter=Filter(tag=tag))


class Patient(JobActions):
    """Bulk work that takes as long as on a very large table, a job every tenth of a second."""

    async def perform(
        self, action: Action, selection: Selection, *, progress: OnProgress | None = None
    ) -> Acted:
        assert progress is not None
        for done in range(MANY // 3, MANY * 10):
            progress(Acted(changed=done))
            await asyncio.sleep(0.1)
        return Acted(changed=MANY)


def begin_slowly(site: Site, tag: str) -> Operation:
    """Bulk work on the pages for people with tokens; they see it until it is stopped."""

    async def begin(store: Store) -> Operation:
        work = site.staffed.operations
        slow = Patient(store, actor="web:otto")
        return await work.start(slow, Action.CANCEL, tagged(tag), actor="web:otto")

    return site.ask(begin)
