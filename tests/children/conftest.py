"""A harness for the child executor, without an engine and without a store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from forge_jobs.config import EngineSettings
from forge_jobs.core import payload
from forge_jobs.core.job import ClaimedJob, Enqueued, NewJob
from forge_jobs.engine.running.context import RunEnvironment
from forge_jobs.engine.running.executors.child import ChildExecutor
from forge_jobs.engine.running.registry import ChildTarget, Handler
from forge_jobs.engine.running.run import Run, RunOutcome, RunState, StopReason
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.kit.entropy import SYSTEM_ENTROPY
from tests.children.sample_app import shop


class NoEnqueuer:
    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise AssertionError("the worker's enqueuer is not for children")

    async def aenqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        raise AssertionError("the worker's enqueuer is not for children")

    def prepare(self, job: NewJob) -> NewJob:
        return job


class ExecutorHarness:
    """Submits runs to an executor and records their outcomes."""

    def __init__(self, settings: EngineSettings) -> None:
        self.environment = RunEnvironment(
            lambda: "HOST",
            7,
            SYSTEM_CLOCK,
            NoEnqueuer(),
            lambda kind, value: NewJob(kind=kind, queue="default"),
        )
        self.steps = SimpleNamespace(owner=lambda: 3, store_time=SYSTEM_CLOCK)
        self.executor = ChildExecutor(
            self._ended, clock=SYSTEM_CLOCK, entropy=SYSTEM_ENTROPY, settings=settings
        )
        self._waiting: dict[Run, asyncio.Future[RunOutcome]] = {}
        self._keys = 0

    def add_notes(self, run: Run) -> None:
        pass

    def _ended(self, run: Run, run_outcome: RunOutcome) -> None:
        run.state = RunState.FINISHED
        self._waiting[run].set_result(run_outcome)

    def begin(
        self,
        kind: str,
        value: Any = None,
        *,
        isolated: bool = False,
        target: ChildTarget | None = None,
        timeout_s: float | None = None,
    ) -> Run:
        self._keys += 1
        job = ClaimedJob(
            self._keys, 1, kind, "video", payload.encode(value), 2, 5,
            SYSTEM_CLOCK.now(), SYSTEM_CLOCK.now(), tags=("vip",), timeout_s=timeout_s,
        )  # fmt: skip
        known = shop.handler(kind)
        chosen = target or ChildTarget(module="tests.children.sample_app", file=None, kind=kind)
        handler = Handler(
            kind=kind,
            run_in=shop.handler("echo").run_in if known is None else known.run_in,  # type: ignore[union-attr]
            call=lambda data, make_context: None,
            child=chosen,
        )
        run = Run(job, handler, self, None, SYSTEM_CLOCK.mono())  # type: ignore[arg-type]
        run.state = RunState.RUNNING
        if timeout_s is not None:
            run.deadline = run.started_at + timeout_s
        self._waiting[run] = asyncio.get_running_loop().create_future()
        if isolated:
            self.executor.run_isolated(run)
        else:
            self.executor.submit(run)
        return run

    async def run_outcome(self, run: Run, seconds: float = 60) -> RunOutcome:
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self._waiting[run])

    async def run(self, kind: str, value: Any = None, **options: Any) -> RunOutcome:
        return await self.run_outcome(self.begin(kind, value, **options))

    async def value(self, kind: str, value: Any = None, **options: Any) -> Any:
        run_outcome = await self.run(kind, value, **options)
        assert run_outcome.result is not None, run_outcome
        return payload.decode(run_outcome.result)

    def stop(self, run: Run, why: StopReason) -> None:
        run.stop = why
        self.executor.interrupt(run)


@pytest.fixture
def settings() -> EngineSettings:
    return EngineSettings()


@pytest.fixture
async def harness(settings: EngineSettings) -> AsyncIterator[ExecutorHarness]:
    made = ExecutorHarness(settings)
    yield made
    await made.executor.close()
