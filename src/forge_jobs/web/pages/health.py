"""``forge doctor`` as a page: what is wrong, worst first, each with its cure."""

import asyncio
from typing import Final

from forge_jobs.ops import doctor, metrics
from forge_jobs.ops.doctor import Severity
from forge_jobs.web.desk import Desk

from .page import Given, Page, Shown


async def view(desk: Desk, given: Given) -> Shown:
    findings, latency = await asyncio.gather(
        doctor.examine(desk.store, clock=desk.clock, deep=False),
        metrics.store_latency(desk.store, clock=desk.clock),
    )
    return {
        "findings": findings,
        "troubles": sum(finding.severity != Severity.OK for finding in findings),
        "latency": latency,
        "about": desk.store.upkeep.describe(),
    }


PAGE: Final = Page(
    path="/health", name="health", title="Health", template="health.html", view=view, key="h"
)
