"""A job suspected of killing its worker runs alone; only the death of its own child counts."""

import os
from typing import Any

import pytest

from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.services import reap_stale_jobs
from forge_jobs.handlers import CmdExecHandler, Command
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess
from tests.engine import suspects
from tests.engine.rig import Rig, until

pytestmark = pytest.mark.processes


async def _crash_with_it(rig: Rig, times: int) -> None:
    """Processes claim everything that is pending and die."""
    for number in range(times):
        name, witness = f"victim-{number}", f"witness-{number}"
        owner = await rig.store.processes.register(_new(name))
        await _claim_everything(rig, owner)
        await rig.store.processes.register(_new(witness), replaces=name)
        await reap_stale_jobs(rig.store)


async def _claim_everything(rig: Rig, owner: int) -> None:
    """One search may pass over jobs that were just put back (docs/decisions/0026)."""
    asked = 0

    async def claimed() -> bool:
        nonlocal asked
        asked += 1
        await rig.store.jobs.exchange(Exchange(owner=owner, number=asked, want=[Want("q", 100)]))
        return "pending" not in await rig.counts()

    await until(claimed, "everything is claimed")


def _new(name: str) -> NewProcess:
    return NewProcess(host_id=name, label=name, queues=(), pid=1, hostname="h", lease_s=600)


def _register(rig: Rig, *kinds: str) -> None:
    for kind in kinds:
        handler = suspects.app.handler(kind)
        assert handler is not None
        rig.registry.register(handler)


async def test_a_job_that_kills_its_worker_is_dead_and_the_others_are_not(rig: Rig) -> None:
    _register(rig, "innocent", "deadly")
    companions = await rig.add_many("innocent", 3)
    deadly = await rig.add("deadly")
    await _crash_with_it(rig, 2)
    fresh = await rig.add("innocent")
    async with rig.working({"q": 2}):
        for job_id in companions:
            record = await rig.reaches(job_id)
            assert (record.status, record.crashes) == (JobStatus.DONE, 2)
            assert record.result != str(os.getpid()).encode(), "it ran in a process of its own"
        record = await rig.reaches(deadly)
        assert (record.status, record.crashes) == (JobStatus.DEAD, 3)
        assert "exit" in (record.last_error or "")
        record = await rig.reaches(fresh)
        assert (record.status, record.result) == (JobStatus.DONE, str(os.getpid()).encode())


async def test_a_suspect_that_cannot_be_isolated_is_dead_with_the_reason(rig: Rig) -> None:
    ran: list[int] = []

    async def body(ctx: Context, given: Any) -> None:
        ran.append(1)

    rig.on("local", body)
    suspect = await rig.add("local")
    await _crash_with_it(rig, 2)
    async with rig.working():
        record = await rig.reaches(suspect)
    assert record.status is JobStatus.DEAD
    assert "cannot be moved to a process of its own" in (record.last_error or "")
    assert ran == []


async def test_a_handler_that_works_in_other_processes_needs_none_of_its_own(rig: Rig) -> None:
    rig.registry.register(CmdExecHandler(commands={"go": Command("/bin/echo", ["fine"])}))
    suspect = await rig.add("cmd_exec", {"command": "go"})
    await _crash_with_it(rig, 2)
    async with rig.working():
        record = await rig.reaches(suspect)
    assert (record.status, record.crashes) == (JobStatus.DONE, 2)


async def test_one_crash_does_not_isolate_a_job(rig: Rig) -> None:
    _register(rig, "innocent")
    job_id = await rig.add("innocent")
    await _crash_with_it(rig, 1)
    async with rig.working():
        record = await rig.reaches(job_id)
    assert (record.status, record.result) == (JobStatus.DONE, str(os.getpid()).encode())
