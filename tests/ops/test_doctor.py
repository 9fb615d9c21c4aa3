"""What the doctor says."""

import pytest

from forge_jobs.ops import doctor
from forge_jobs.store.store import Finding, SchemaStatus, Severity
from tests.ops.desk import Desk


async def said(desk: Desk, subject: str) -> list[Finding]:
    findings = await doctor.examine(desk.store, clock=desk.clock)
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
def test_the_schema_is_judged(status: SchemaStatus, severity: Severity, cure: str) -> None:
    finding = doctor.schema_finding(status)
    assert finding.severity is severity
    assert cure in finding.cure


async def test_a_healthy_store_has_no_complaint(desk: Desk) -> None:
    await desk.some(1)
    await desk.hire("mail")
    findings = await doctor.examine(desk.store, clock=desk.clock)
    ours = [f for f in findings if f.subject in ("workers", "running jobs", "schema")]
    assert [finding.subject for finding in ours].count("schema") == 1
    assert {finding.severity for finding in ours} == {Severity.OK}
    assert len(ours) == 3
    assert not [finding for finding in findings if finding.subject.startswith("queue")]


async def test_H3_jobs_in_a_queue_that_nobody_serves_are_a_warning_with_its_cure(
    desk: Desk,
) -> None:
    await desk.some(3)
    (finding,) = await said(desk, "queue mail")
    assert finding.severity is Severity.WARNING
    assert "3 jobs wait" in finding.message
    assert finding.cure == "forge worker APP --queues mail"
    workers = await said(desk, "workers")
    assert workers[0].severity is Severity.WARNING
    assert workers[0].message == "no worker is running"


async def test_a_paused_queue_is_told_only_while_jobs_wait(desk: Desk) -> None:
    await desk.store.queues.ensure("mail", slots=1)
    await desk.hire("mail")
    await desk.operator.pause("mail")
    assert await said(desk, "queue mail") == []
    await desk.some(1)
    (finding,) = await said(desk, "queue mail")
    assert finding.cure == "forge queues resume mail"


async def test_long_waiting_is_told(desk: Desk) -> None:
    await desk.some(1)
    desk.clock.advance(400)
    await desk.hire("mail")
    (finding,) = await said(desk, "queue mail")
    assert "waited 400 s" in finding.message


async def test_running_jobs_of_a_dead_worker_are_counted(desk: Desk) -> None:
    await desk.some(2)
    await desk.hire("mail")
    await desk.claim(count=2)
    desk.clock.advance(16)
    (finding,) = await said(desk, "running jobs")
    assert finding.severity is Severity.WARNING
    assert "2 belong to workers that are gone" in finding.message


async def test_the_worst_comes_first(desk: Desk) -> None:
    await desk.some(1)
    severities = [finding.severity for finding in await doctor.examine(desk.store)]
    order = [Severity.ERROR, Severity.WARNING, Severity.OK]
    assert severities == sorted(severities, key=order.index)


async def test_L10_a_queue_that_is_set_up_but_not_served_is_told_before_jobs_wait(
    desk: Desk,
) -> None:
    await desk.store.queues.ensure("mail", slots=3)
    await desk.store.queues.ensure("pulled", slots=0)
    worker = await desk.hire("mail")
    assert await said(desk, "queue mail") == []
    await desk.store.processes.deregister(worker)
    (finding,) = await said(desk, "queue mail")
    assert finding.severity is Severity.WARNING
    assert finding.message == "no living worker serves queue 'mail'"
    assert finding.cure == "forge worker APP --queues mail"
    assert await said(desk, "queue pulled") == []
