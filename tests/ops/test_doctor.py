"""Findings of ``forge doctor``."""

import pytest

from forge_jobs.ops import doctor
from forge_jobs.store.store import Finding, SchemaStatus, Severity
from tests.ops.harness import StoreHarness


async def findings_about(harness: StoreHarness, subject: str) -> list[Finding]:
    findings = await doctor.examine(harness.store, clock=harness.clock)
    return [finding for finding in findings if finding.subject == subject]


@pytest.mark.parametrize(
    ("status", "severity", "cure"),
    [
        (SchemaStatus(None, 2), Severity.WARNING, "forge db create"),
        (SchemaStatus(1, 2, 1), Severity.ERROR, "forge db migrate"),
        (SchemaStatus(2, 2, 1, ("exchange_v2",)), Severity.ERROR, "forge db migrate"),
        (SchemaStatus(2, 2, 1), Severity.OK, ""),
        (SchemaStatus(3, 2, 2), Severity.OK, ""),
        (SchemaStatus(3, 2, 3), Severity.ERROR, "upgrade"),
    ],
)
def test_findings_about_the_schema_version(
    status: SchemaStatus, severity: Severity, cure: str
) -> None:
    finding = doctor.schema_finding(status)
    assert finding.severity is severity
    assert cure in finding.cure


async def test_a_healthy_store_has_no_warning(harness: StoreHarness) -> None:
    await harness.enqueue(1)
    await harness.register_worker("mail")
    findings = await doctor.examine(harness.store, clock=harness.clock)
    ours = [f for f in findings if f.subject in ("workers", "running jobs", "schema")]
    assert [finding.subject for finding in ours].count("schema") == 1
    assert {finding.severity for finding in ours} == {Severity.OK}
    assert len(ours) == 3
    assert not [finding for finding in findings if finding.subject.startswith("queue")]


async def test_H3_jobs_in_an_unserved_queue_are_a_warning_with_a_remedy(
    harness: StoreHarness,
) -> None:
    await harness.enqueue(3)
    (finding,) = await findings_about(harness, "queue mail")
    assert finding.severity is Severity.WARNING
    assert "3 jobs wait" in finding.message
    assert finding.cure == "forge worker APP --queues mail"
    workers = await findings_about(harness, "workers")
    assert workers[0].severity is Severity.WARNING
    assert workers[0].message == "no worker is running"


async def test_a_paused_queue_is_reported_only_while_jobs_wait(harness: StoreHarness) -> None:
    await harness.store.queues.ensure("mail", slots=1)
    await harness.register_worker("mail")
    await harness.actions.pause("mail")
    assert await findings_about(harness, "queue mail") == []
    await harness.enqueue(1)
    (finding,) = await findings_about(harness, "queue mail")
    assert finding.cure == "forge queues resume mail"


async def test_a_long_wait_is_reported(harness: StoreHarness) -> None:
    await harness.enqueue(1)
    harness.clock.advance(400)
    await harness.register_worker("mail")
    (finding,) = await findings_about(harness, "queue mail")
    assert "waited 400 s" in finding.message


async def test_running_jobs_of_a_dead_worker_are_counted(harness: StoreHarness) -> None:
    await harness.enqueue(2)
    await harness.register_worker("mail")
    await harness.claim(count=2)
    harness.clock.advance(16)
    (finding,) = await findings_about(harness, "running jobs")
    assert finding.severity is Severity.WARNING
    assert "2 belong to workers that are gone" in finding.message


async def test_findings_are_sorted_worst_first(harness: StoreHarness) -> None:
    await harness.enqueue(1)
    severities = [finding.severity for finding in await doctor.examine(harness.store)]
    order = [Severity.ERROR, Severity.WARNING, Severity.OK]
    assert severities == sorted(severities, key=order.index)


async def test_L10_a_configured_but_unserved_queue_is_reported_before_jobs_wait(
    harness: StoreHarness,
) -> None:
    await harness.store.queues.ensure("mail", slots=3)
    await harness.store.queues.ensure("pulled", slots=0)
    worker = await harness.register_worker("mail")
    assert await findings_about(harness, "queue mail") == []
    await harness.store.processes.deregister(worker)
    (finding,) = await findings_about(harness, "queue mail")
    assert finding.severity is Severity.WARNING
    assert finding.message == "no living worker serves queue 'mail'"
    assert finding.cure == "forge worker APP --queues mail"
    assert await findings_about(harness, "queue pulled") == []
