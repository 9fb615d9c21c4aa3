"""The system over HTTP: overview, health, storage, metrics, and the OpenAPI document."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from forge_jobs.ops import doctor, queries
from forge_jobs.ops.doctor import Finding, Severity
from forge_jobs.ops.prometheus import CONTENT_TYPE, prometheus_text
from forge_jobs.ops.views import Overview
from forge_jobs.web import page_files
from forge_jobs.web.request_context import RequestContext

from .route import Routes, TextBody

routes = Routes()


class StorageInfo(Struct, frozen=True, kw_only=True):
    """Facts about the store, without secrets."""

    backend: str
    fields: tuple[tuple[str, ...], ...]


class Health(Struct, frozen=True, kw_only=True):
    """The findings of ``forge doctor``; ``ok`` without errors and warnings."""

    ok: bool
    findings: tuple[Finding, ...]
    unserved_queues: tuple[str, ...]


class OverviewQuery(Struct, frozen=True, kw_only=True):
    """The number of recent minutes."""

    minutes: Annotated[int, Meta(ge=1, le=1_440)] = 10


@routes.get("/health")
async def liveness(context: RequestContext) -> TextBody:
    """Whether this process responds; does not use the store."""
    return TextBody("ok\n")


@routes.get("/health/findings")
async def health(context: RequestContext) -> Health:
    """Findings with their remedies, and queues that no worker serves."""
    found = await doctor.examine(context.store, clock=context.clock, deep=False)
    findings = tuple(doctor.worst_first([*found, *page_files.findings()]))
    queues = await queries.queues(context.store, clock=context.clock)
    return Health(
        ok=all(finding.severity is Severity.OK for finding in findings),
        findings=findings,
        unserved_queues=queries.unserved_queues(queues),
    )


@routes.get("/overview")
async def overview(context: RequestContext, query: OverviewQuery) -> Overview:
    """Counts, queues, workers and the last minutes."""
    return await queries.overview(context.store, minutes=query.minutes, clock=context.clock)


@routes.get("/storage/info")
async def storage(context: RequestContext) -> StorageInfo:
    """Facts about the store."""
    facts = dict(context.store.maintenance.describe())
    return StorageInfo(backend=facts.pop("backend", "?"), fields=tuple(facts.items()))


@routes.get("/metrics")
async def metrics(context: RequestContext) -> TextBody:
    """The state of the store as Prometheus text."""
    return TextBody(await prometheus_text(context.store, clock=context.clock), CONTENT_TYPE)


@routes.get("/openapi.json")
async def document(context: RequestContext) -> dict[str, Any]:
    """This document."""
    from .openapi import openapi_document

    return openapi_document(context.root, read_only=context.read_only)
