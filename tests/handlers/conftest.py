"""A harness that calls handlers as a worker does, without an engine and without a store."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from forge_jobs.core.errors import ForgeError
from forge_jobs.core.instant import to_datetime
from forge_jobs.core.job import LogLine, NewJob
from forge_jobs.engine.running.context import Context, JobInfo, RunEnvironment
from forge_jobs.kit.clock import SYSTEM_CLOCK


class NoEnqueuer:
    """Refuses: these handlers enqueue nothing."""

    def enqueue(self, jobs: Any) -> Any:
        raise ForgeError("not here")

    async def aenqueue(self, jobs: Any) -> Any:
        raise ForgeError("not here")

    def prepare(self, job: NewJob) -> NewJob:
        return job


class RecordedContext:
    """Records the progress and the log lines of one job."""

    def __init__(self) -> None:
        self.stop_reason: str | None = None
        self.options: dict[str, Any] | None = None
        self.started_at = 0.0
        self.progress: list[tuple[float, str | None]] = []
        self.lines: list[LogLine] = []

    def report(self, *, progress: float | None, note: str | None, line: LogLine | None) -> None:
        if progress is not None:
            self.progress.append((progress, note))
        if line is not None:
            self.lines.append(line)

    def add_successor(self, job: NewJob) -> None:
        raise AssertionError("these handlers carry nothing")

    @property
    def text(self) -> str:
        return "\n".join(line.message for line in self.lines)


class HandlerHarness:
    """Creates contexts of one fake worker process, and closes what they share."""

    def __init__(self) -> None:
        self.around = RunEnvironment(
            lambda: "HOST",
            7,
            SYSTEM_CLOCK,
            NoEnqueuer(),
            lambda kind, value: NewJob(kind=kind, queue="default"),
        )
        self._number = 0

    def context(
        self, recorded: RecordedContext | None = None, *, enqueued_at: int | None = None
    ) -> Context:
        self._number += 1
        at = to_datetime(SYSTEM_CLOCK.now() if enqueued_at is None else enqueued_at)
        info = JobInfo(f"JOB{self._number}", "kind", "queue", 1, 5, at, ())
        return Context(info, recorded or RecordedContext(), self.around)

    async def run(self, handler: Any, payload: Any, recorded: RecordedContext | None = None) -> Any:
        return await handler.run(self.context(recorded), payload)

    async def close(self) -> None:
        for one in self.around.shared.values():
            await one.close()


@pytest.fixture
async def harness() -> Any:
    made = HandlerHarness()
    yield made
    await made.close()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone_within(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


async def numbers_in(path: Path, count: int, seconds: float = 60) -> list[int]:
    """Wait for ``count`` process ids that a program writes to a file, one per line."""
    deadline = time.monotonic() + seconds
    while True:
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        if len(lines) >= count:
            return [int(line) for line in lines]
        assert time.monotonic() < deadline, f"{path.name}: {lines}"
        await asyncio.sleep(0.01)


def processes_with_mark(mark: str) -> list[int]:
    """The live processes whose environment holds this mark."""
    found: list[int] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("STORM_MARK") == mark and alive(process.pid):
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.fixture
def no_scratch_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Redirects scratch folders, and checks that none is left at the end."""
    home = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(home))
        yield home
    deadline = time.monotonic() + 60
    while os.listdir(home):
        assert time.monotonic() < deadline, os.listdir(home)
        time.sleep(0.02)
