"""Diagnoses a store and its cluster: findings, each with a severity and a remedy."""

from collections.abc import Iterable, Sequence

from forge_jobs.core.errors import ForgeError
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import WAITING, JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Finding, SchemaStatus, Severity, Store

from .queries import overview
from .views import Overview, QueueView

MAX_OWNERS_CHECKED = 500
LAG_WARN_S = 300.0
CLOCK_WARN_S = 5.0

__all__ = [
    "Finding", "SchemaStatus", "Severity", "cluster_findings", "examine", "schema_finding",
    "worst_first",
]  # fmt: skip


async def examine(store: Store, *, clock: Clock = SYSTEM_CLOCK, deep: bool = True) -> list[Finding]:
    """All findings, worst first. Does not create or migrate a schema. Without ``deep`` no check
    reads the whole store."""
    status = await store.maintenance.schema_status()
    findings = await store.maintenance.examine(deep=deep)
    own_findings = [schema_finding(status)]
    if status.current == status.wanted:
        try:
            await store.open(migrate=False)
            own_findings.extend(cluster_findings(await overview(store, clock=clock)))
            own_findings.append(await _orphans_finding(store))
        except ForgeError as error:
            own_findings.append(Finding(Severity.ERROR, "store", str(error), "see the message"))
    # a finding of the backend on the same subject is more precise than ours
    reported = {(finding.subject, finding.severity) for finding in findings}
    findings.extend(
        finding for finding in own_findings if (finding.subject, finding.severity) not in reported
    )
    return worst_first(findings)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings: errors, then warnings, then those that are OK."""
    order = (Severity.ERROR, Severity.WARNING, Severity.OK)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def schema_finding(status: SchemaStatus) -> Finding:
    """The finding for a schema version: missing, older, newer or current."""
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


def cluster_findings(cluster: Overview) -> list[Finding]:
    """Findings about workers, their clocks and versions, and queues."""
    findings: list[Finding] = []
    if not cluster.workers:
        findings.append(
            Finding(Severity.WARNING, "workers", "no worker is running", "forge worker APP")
        )
    else:
        findings.append(Finding(Severity.OK, "workers", f"{len(cluster.workers)} running"))
    for worker in cluster.workers:
        clock_ahead_s = (worker.beat_at - cluster.at).total_seconds()
        if clock_ahead_s > CLOCK_WARN_S:
            text = f"the clock of {worker.hostname} or of this machine is {clock_ahead_s:.0f} s off"
            findings.append(Finding(Severity.WARNING, "clock", text, "run a time service (NTP)"))
    versions = sorted({worker.version for worker in cluster.workers if worker.version})
    if len(versions) > 1:
        text = f"workers of several versions: {', '.join(versions)}"
        findings.append(Finding(Severity.WARNING, "versions", text, "finish the deployment"))
    for queue in cluster.queues:
        findings.extend(_queue_findings(queue))
    return findings


def _queue_findings(queue: QueueView) -> Sequence[Finding]:
    suspended = queue.counts[JobStatus.SUSPENDED]
    waiting = sum(queue.counts[status] for status in WAITING) + suspended
    waiting_text = "1 job waits" if waiting == 1 else f"{waiting:,} jobs wait"
    if suspended:
        waiting_text += f" ({suspended:,} of them for an event)"
    subject = f"queue {queue.name}"
    if not waiting:
        # Jobs that are enqueued later would wait. A queue without slots is for the pull queue.
        unserved = queue.configured and queue.slots > 0
        return [
            Finding(Severity.WARNING, subject, block.text, block.remedy or "")
            for block in queue.blocks
            if unserved and block.code == "no_worker"
        ]
    blocks = [
        Finding(Severity.WARNING, subject, f"{waiting_text}: {block.text}", block.remedy or "")
        for block in queue.blocks
    ]
    if not blocks and queue.lag_s > LAG_WARN_S:
        text = f"the oldest due job has waited {queue.lag_s:,.0f} s"
        remedy = f"more workers, or forge queues set {queue.name} --workers {queue.slots * 2}"
        return (Finding(Severity.WARNING, subject, text, remedy),)
    return blocks


async def _orphans_finding(store: Store) -> Finding:
    page = await store.jobs.page(Filter(statuses=(JobStatus.RUNNING,)), limit=MAX_OWNERS_CHECKED)
    alive = {process.key for process in await store.processes.all()}
    orphans = sum(record.owner not in alive for record in page.jobs)
    if orphans:
        return Finding(
            Severity.WARNING, "running jobs", f"{orphans} belong to workers that are gone",
            "any running worker takes them over within its lease and 5 seconds",
        )  # fmt: skip
    return Finding(Severity.OK, "running jobs", "none without a living worker")
