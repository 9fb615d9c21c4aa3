"""The health page: findings of ``forge doctor``, and the size and latency of the database."""

import asyncio
from typing import Final

from forge_jobs.ops import doctor
from forge_jobs.ops.doctor import Severity
from forge_jobs.ops.storage import StorageView, read_storage
from forge_jobs.web import page_files
from forge_jobs.web.request_context import RequestContext

from . import charts
from .page import PageSpec, Params, TemplateVars


async def view(context: RequestContext, params: Params) -> TemplateVars:
    findings, storage = await asyncio.gather(
        doctor.examine(context.store, clock=context.clock, deep=False),
        read_storage(context.store, clock=context.clock),
    )
    findings = doctor.worst_first([*findings, *page_files.findings()])
    return {
        "findings": findings,
        "troubles": sum(finding.severity != Severity.OK for finding in findings),
        "storage": storage,
        "about": context.store.maintenance.describe(),
        "charts": _charts(storage),
    }


def _charts(storage: StorageView) -> list[TemplateVars]:
    at = [minute.at.timestamp() for minute in storage.minutes]
    durations = [minute.took for minute in storage.minutes]
    exchanges: list[float | None] = [stats.count for stats in durations]
    failed: list[float | None] = [minute.errors for minute in storage.minutes]
    return [
        charts.latency_chart("answers", "The store answers workers in", at, durations),
        charts.chart(
            "exchanges",
            "Exchanges with the store",
            at,
            {"exchanges": exchanges, "failed": failed},
            note="per minute",
            tones=("info", "bad"),
        ),
    ]


PAGE: Final = PageSpec(
    path="/health", name="health", title="Health", template="health.html", view=view, key="h"
)
