"""The system over HTTP: overview, health, storage, metrics, and the document of this API."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from forge_jobs.ops import doctor, queries
from forge_jobs.ops.doctor import Finding, Severity
from forge_jobs.ops.prometheus import CONTENT_TYPE, prometheus_text
from forge_jobs.ops.views import Overview
from forge_jobs.web import page_files
from forge_jobs.web.request_context import RequestContext

from .route import Routes, Text

routes = Routes()


class Storage(Struct, frozen=True, kw_only=True):
    """Where jobs are kept; never a password."""

    backend: str
    fields: tuple[tuple[str, ...], ...]


class Health(Struct, frozen=True, kw_only=True):
    """What ``forge doctor`` says; ``ok`` without errors and warnings."""

    ok: bool
    findings: tuple[Finding, ...]
    unserved_queues: tuple[str, ...]


class Minutes(Struct, frozen=True, kw_only=True):
    """How far back."""

    minutes: Annotated[int, Meta(ge=1, le=1_440)] = 10


@routes.get("/health")
async def alive(desk: RequestContext) -> Text:
    """Whether this process answers; the store is not asked."""
    return Text("ok\n")


@routes.get("/health/findings")
async def health(desk: RequestContext) -> Health:
    """What is wrong, each finding with its cure, and queues that nobody serves."""
    found = await doctor.examine(desk.store, clock=desk.clock, deep=False)
    findings = tuple(doctor.worst_first([*found, *page_files.findings()]))
    queues = await queries.queues(desk.store, clock=desk.clock)
    return Health(
        ok=all(finding.severity is Severity.OK for finding in findings),
        findings=findings,
        unserved_queues=queries.unserved(queues),
    )


@routes.get("/overview")
async def overview(desk: RequestContext, query: Minutes) -> Overview:
    """Counts, queues, workers and the last minutes."""
    return await queries.overview(desk.store, minutes=query.minutes, clock=desk.clock)


@routes.get("/storage/info")
async def storage(desk: RequestContext) -> Storage:
    """Facts about the store."""
    facts = dict(desk.store.maintenance.describe())
    return Storage(backend=facts.pop("backend", "?"), fields=tuple(facts.items()))


@routes.get("/metrics")
async def metrics(desk: RequestContext) -> Text:
    """The state of the store as Prometheus text."""
    return Text(await prometheus_text(desk.store, clock=desk.clock), CONTENT_TYPE)


@routes.get("/openapi.json")
async def document(desk: RequestContext) -> dict[str, Any]:
    """This document."""
    from .openapi import described

    return described(desk.root, read_only=desk.read_only)
