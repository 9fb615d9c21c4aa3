"""DBOS's workflows. They are registered when this module is imported."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from dbos import DBOS, SetWorkflowID
from dbos._sys_db import SystemDatabase

from benchmarks.systems import peer
from benchmarks.systems.timing import Notes

NOTED = Notes()
HOUR = 3_600.0


@DBOS.step(name="nothing")
async def nothing() -> None:
    """A step."""


@DBOS.step(name="stamp")
async def stamp(sent: float) -> None:
    await peer.stamp(sent)


@DBOS.workflow(name="steps")
async def steps(count: int) -> None:
    for _ in range(count):
        await nothing()


@DBOS.workflow(name="lone")
async def lone(count: int) -> None:
    """A step before the clock starts, because the first one may prepare something."""
    await nothing()
    started = time.monotonic()
    for _ in range(count):
        await nothing()
    NOTED.add((time.monotonic() - started) / count)


@DBOS.workflow(name="resume")
async def resume(count: int) -> None:
    """The step after the others ends with the process, so that the next process runs it again."""
    for _ in range(count):
        await nothing()
    await at_the_end()


@DBOS.step(name="at_the_end")
async def at_the_end() -> None:
    await NOTED.arrived() if NOTED.since is not None else None
    NOTED.end()
    await asyncio.sleep(HOUR)


@DBOS.workflow(name="sleep")
async def sleep() -> None:
    await DBOS.sleep_async(HOUR)


@DBOS.workflow(name="wait")
async def wait() -> None:
    await stamp(await DBOS.recv_async(timeout_seconds=HOUR))


async def start_waiting(name: str) -> None:
    with SetWorkflowID(name):
        await DBOS.start_workflow_async(wait)


def watch_claims() -> None:
    """Keep the moment at which the last claim that brought a workflow was asked for."""
    plain: Any = SystemDatabase.start_queued_workflows

    def start_queued_workflows(*arguments: Any, **options: Any) -> Any:
        asked = time.monotonic()
        claimed = plain(*arguments, **options)
        if claimed[0]:
            NOTED.since = asked
        return claimed

    SystemDatabase.start_queued_workflows = start_queued_workflows
