"""Runs jobs with steps to their end, and what their steps return."""

import dataclasses
from typing import Any

import msgspec

from forge_jobs import Forge, JobStatus, testing

Calls = list[Any]


@dataclasses.dataclass
class Charge:
    id: str
    cents: int


class Parcel(msgspec.Struct):
    number: int
    to: str


class Payment(msgspec.Struct):
    amount: int


async def run_all(forge: Forge, job: Any, *, times: int = 20) -> Any:
    """Let time pass until the job has ended or waits for an event."""
    with testing.frozen(forge) as time:
        for _ in range(times):
            await forge.drain()
            await job.arefresh()
            if job.ended or job.status is JobStatus.SUSPENDED:
                return job
            time.advance("1h")
    raise AssertionError(f"{job} has not ended: {job.error}")


async def failure(forge: Forge, task: Any, *args: Any) -> str:
    """The error of a job that fails at once."""
    job = await task.aenqueue(*args)
    await forge.drain()
    await job.arefresh()
    assert job.status in (JobStatus.DEAD, JobStatus.FAILED), job.status
    return str(job.error)


async def status(job: Any) -> JobStatus:
    return (await job.arefresh()).status
