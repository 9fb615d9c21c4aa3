"""``forge doctor`` as a page: what is wrong, worst first, each with its cure; and the database."""

import asyncio
from typing import Final

from forge_jobs.ops import doctor
from forge_jobs.ops.doctor import Severity
from forge_jobs.ops.storage import Storage, storage
from forge_jobs.web import page_files
from forge_jobs.web.request_context import RequestContext

from . import charts
from .page import Given, Page, Shown


async def view(desk: RequestContext, given: Given) -> Shown:
    findings, kept = await asyncio.gather(
        doctor.examine(desk.store, clock=desk.clock, deep=False),
        storage(desk.store, clock=desk.clock),
    )
    findings = doctor.worst_first([*findings, *page_files.findings()])
    return {
        "findings": findings,
        "troubles": sum(finding.severity != Severity.OK for finding in findings),
        "storage": kept,
        "about": desk.store.maintenance.describe(),
        "charts": _charts(kept),
    }


def _charts(kept: Storage) -> list[Shown]:
    at = [minute.at.timestamp() for minute in kept.minutes]
    took = [minute.took for minute in kept.minutes]
    asked: list[float | None] = [one.count for one in took]
    failed: list[float | None] = [minute.errors for minute in kept.minutes]
    return [
        charts.latency("answers", "The store answers workers in", at, took),
        charts.chart(
            "exchanges",
            "Exchanges with the store",
            at,
            {"exchanges": asked, "failed": failed},
            note="per minute",
            tones=("info", "bad"),
        ),
    ]


PAGE: Final = Page(
    path="/health", name="health", title="Health", template="health.html", view=view, key="h"
)
