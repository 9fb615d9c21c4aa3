"""One job in full: what it is, what it said, and why it is not running."""

from typing import Final

from forge_jobs.ops import look
from forge_jobs.ops.act import APPLIES, Action
from forge_jobs.web.desk import Desk

from .page import Given, Page, Shown


async def view(desk: Desk, given: Given) -> Shown:
    job = await look.job(desk.store, given["id"], clock=desk.clock)
    listed = (Action.RETRY, Action.RUN_NOW, Action.CANCEL, Action.DUPLICATE, Action.DELETE)
    return {"job": job, "actions": [a.value for a in listed if job.status in APPLIES[a]]}


PAGE: Final = Page(
    path="/jobs/{id}", name="job", title="Job", template="job.html", view=view, nav=False
)
