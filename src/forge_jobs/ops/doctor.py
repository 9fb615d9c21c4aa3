"""Judging: what is wrong with this store and its cluster, each finding with its cure."""

from collections.abc import Iterable, Sequence

from forge_jobs.core.errors import ForgeError
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Finding, SchemaStatus, Severity, Store

from .queries import overview
from .views import Overview, QueueView

OWNERS_LOOKED_AT = 500
LAG_WARN_S = 300.0
CLOCK_WARN_S = 5.0

__all__ = [
    "Finding", "SchemaStatus", "Severity", "cluster_findings", "examine", "schema_finding",
    "worst_first",
]  # fmt: skip


async def examine(store: Store, *, clock: Clock = SYSTEM_CLOCK, deep: bool = True) -> list[Finding]:
    """Everything there is to say, worst first. Opens nothing that has no schema yet. Without
    ``deep`` nothing is asked that reads the whole store."""
    status = await store.maintenance.schema_status()
    findings = await store.maintenance.examine(deep=deep)
    ours = [schema_finding(status)]
    if status.current == status.wanted:
        try:
            await store.open(migrate=False)
            ours.extend(cluster_findings(await overview(store, clock=clock)))
            ours.append(await _owners(store))
        except ForgeError as error:
            ours.append(Finding(Severity.ERROR, "store", str(error), "see the message"))
    # where the backend has looked at the same thing, its word is the closer one
    told = {(finding.subject, finding.severity) for finding in findings}
    findings.extend(one for one in ours if (one.subject, one.severity) not in told)
    return worst_first(findings)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Errors, then warnings, then what is fine."""
    worst = (Severity.ERROR, Severity.WARNING, Severity.OK)
    return sorted(findings, key=lambda finding: worst.index(finding.severity))


def schema_finding(status: SchemaStatus) -> Finding:
    """What the schema's version means."""
    current, wanted = status.current, status.wanted
    if current is None:
        return Finding(
            Severity.WARNING, "schema", "there is no database yet",
            "forge db create (a worker or the first enqueue makes it, too)",
        )  # fmt: skip
    if status.is_too_new:
        text = f"version {current} needs a newer release than this one, which knows {wanted}"
        return Finding(Severity.ERROR, "schema", text, "upgrade forge-jobs on this machine")
    if current < wanted:
        text = f"version {current}, this release wants {wanted}"
        return Finding(Severity.ERROR, "schema", text, "forge db migrate")
    if not status.is_complete:
        text = f"functions are missing or old: {', '.join(status.outdated_functions)}"
        return Finding(Severity.ERROR, "schema", text, "forge db migrate")
    newer = f", newer than this release ({wanted}) and compatible" if current > wanted else ""
    return Finding(Severity.OK, "schema", f"version {current}{newer}")


def cluster_findings(seen: Overview) -> list[Finding]:
    """What the queues and workers show."""
    findings: list[Finding] = []
    if not seen.workers:
        findings.append(
            Finding(Severity.WARNING, "workers", "no worker is running", "forge worker APP")
        )
    else:
        findings.append(Finding(Severity.OK, "workers", f"{len(seen.workers)} running"))
    for worker in seen.workers:
        ahead_s = (worker.beat_at - seen.at).total_seconds()
        if ahead_s > CLOCK_WARN_S:
            text = f"the clock of {worker.hostname} or of this machine is {ahead_s:.0f} s off"
            findings.append(Finding(Severity.WARNING, "clock", text, "run a time service (NTP)"))
    versions = sorted({worker.version for worker in seen.workers if worker.version})
    if len(versions) > 1:
        text = f"workers of several versions: {', '.join(versions)}"
        findings.append(Finding(Severity.WARNING, "versions", text, "finish the deployment"))
    for queue in seen.queues:
        findings.extend(_queue(queue))
    return findings


def _queue(queue: QueueView) -> Sequence[Finding]:
    waiting = sum(queue.counts[s] for s in (JobStatus.PENDING, JobStatus.HELD, JobStatus.FAILED))
    waiting += queue.counts[JobStatus.SCHEDULED]
    subject = f"queue {queue.name}"
    if not waiting:
        # Nothing waits yet; whatever comes would. Without slots it is not meant for workers.
        unserved = queue.configured and queue.slots > 0
        return [
            Finding(Severity.WARNING, subject, block.text, block.remedy or "")
            for block in queue.blocks
            if unserved and block.code == "no_worker"
        ]
    blocks = [
        Finding(
            Severity.WARNING, subject, f"{waiting:,} jobs wait: {block.text}", block.remedy or ""
        )
        for block in queue.blocks
    ]
    if not blocks and queue.lag_s > LAG_WARN_S:
        text = f"the oldest due job has waited {queue.lag_s:,.0f} s"
        cure = f"more workers, or forge queues set {queue.name} --workers {queue.slots * 2}"
        return (Finding(Severity.WARNING, subject, text, cure),)
    return blocks


async def _owners(store: Store) -> Finding:
    page = await store.jobs.page(Filter(statuses=(JobStatus.RUNNING,)), limit=OWNERS_LOOKED_AT)
    alive = {process.key for process in await store.processes.all()}
    orphans = sum(record.owner not in alive for record in page.jobs)
    if orphans:
        return Finding(
            Severity.WARNING, "running jobs", f"{orphans} belong to workers that are gone",
            "any running worker takes them over within its lease and 5 seconds",
        )  # fmt: skip
    return Finding(Severity.OK, "running jobs", "none without a living worker")
