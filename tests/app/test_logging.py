"""What a worker logs: records of the application carry their job, and the lines state the facts."""

import asyncio
import logging
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import Context, EngineSettings, Forge, JobLogFilter, JobStatus
from forge_jobs.engine.running.in_flight import InFlightJobs
from forge_jobs.engine.running.logged_jobs import LoggedInFlightJobs
from forge_jobs.engine.running.run_log import RunLog
from forge_jobs.engine.services.minute_report import MinuteReport
from forge_jobs.testing.clock import MovableClock

LOG = logging.getLogger("shop.orders")


class Kept(logging.Handler):
    """Keeps records as an application's own handler would see them."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(JobLogFilter())
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def of(self, logger: str) -> list[Any]:
        return [record for record in self.records if record.name == logger]


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, root = Kept(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


def facts(record: Any) -> tuple[Any, ...]:
    return (record.job_id, record.kind, record.queue, record.attempt)


# ------------------------------------------------------------------------------ job fields


async def test_u10_records_of_the_application_carry_their_job(forge: Forge, kept: Kept) -> None:
    both = asyncio.Barrier(2)

    @forge.task(queue="mail")
    async def on_loop(name: str) -> None:
        await both.wait()
        LOG.info("%s", name)
        await asyncio.gather(asyncio.to_thread(LOG.info, "%s", name), log_later(name))

    async def log_later(name: str) -> None:
        await asyncio.sleep(0)
        LOG.info("%s", name)

    @forge.task(queue="mail")
    def in_thread(name: str) -> None:
        LOG.info("%s", name)

    LOG.info("outside")
    jobs = {name: await on_loop.aenqueue(name) for name in ("a", "b")}
    jobs |= {name: await in_thread.aenqueue(name) for name in ("c", "d", "e")}
    await forge.drain()
    LOG.info("outside")
    records = kept.of("shop.orders")
    assert len(records) == 3 * 2 + 3 + 2
    for record in records:
        name = record.getMessage()
        if name == "outside":
            assert facts(record) == (None, None, None, None)
        else:
            kind = "on_loop" if name in "ab" else "in_thread"
            assert facts(record) == (jobs[name].id, kind, "mail", 1)


async def test_u10_what_the_caller_passes_stays(forge: Forge, kept: Kept) -> None:
    @forge.task
    async def work() -> None:
        LOG.info("x", extra={"kind": "of tea", "job_id": 7})

    await work.aenqueue()
    await forge.drain()
    [record] = kept.of("shop.orders")
    assert (record.kind, record.job_id, record.queue) == ("of tea", 7, "default")


async def test_u10_a_formatter_of_the_application_can_name_the_fields(
    forge: Forge, kept: Kept
) -> None:
    @forge.task
    async def work() -> None:
        LOG.info("hello")

    LOG.info("before")
    job = await work.aenqueue()
    await forge.drain()
    form = logging.Formatter("%(message)s job=%(job_id)s attempt=%(attempt)s")
    assert [form.format(record) for record in kept.of("shop.orders")] == [
        "before job=None attempt=None",
        f"hello job={job.id} attempt=1",
    ]


async def test_u10_handlers_still_start_with_a_clean_context(forge: Forge, kept: Kept) -> None:
    from contextvars import ContextVar

    mark: ContextVar[str] = ContextVar("mark", default="clean")
    seen: list[str] = []

    @forge.task
    async def on_loop() -> None:
        seen.append(mark.get())
        mark.set("dirty")

    @forge.task
    def in_thread() -> None:
        seen.append(mark.get())
        mark.set("dirty")

    for _ in range(5):
        await on_loop.aenqueue()
        await in_thread.aenqueue()
    await forge.drain()
    assert seen == ["clean"] * 10


# ------------------------------------------------------------------------------ a line per job


def test_u10_a_worker_that_does_not_log_every_job_runs_the_plain_code() -> None:
    """No level is asked for per job: the class is chosen when the worker starts."""
    assert InFlightJobs.begin is not LoggedInFlightJobs.begin
    logger = logging.getLogger("forge_jobs.engine")
    before = logger.level
    try:
        logger.setLevel(logging.INFO)
        assert not RunLog(1).logs_every_job
        assert RunLog(1, job_level=logging.INFO).logs_every_job
        logger.setLevel(logging.DEBUG)
        assert RunLog(1).logs_every_job
    finally:
        logger.setLevel(before)


@pytest.mark.parametrize("log_jobs", [False, True])
async def test_u10_the_start_and_end_of_each_job_can_be_logged(
    any_url: str, kept: Kept, log_jobs: bool
) -> None:
    forge = Forge(any_url, settings=EngineSettings(shutdown_s=10.0, log_jobs=log_jobs))

    @forge.task(queue="mail")
    async def plain() -> None: ...

    @forge.task(queue="mail")
    def with_result() -> int:
        return 1

    try:
        async with forge.worker(queues=["mail"]):
            jobs = [await plain.aenqueue(), await with_result.aenqueue()]
            for job in jobs:
                await job.aresult(timeout=60)
    finally:
        await forge.aclose()
    lines = sorted(record.getMessage() for record in kept.of("forge_jobs.engine"))
    if not log_jobs:
        assert lines == []
        return
    assert len(lines) == 4
    for line, start in zip(lines, ["job done in 0."] * 2 + ["job started: "] * 2, strict=True):
        assert line.startswith(start)
        assert line.endswith(" queue=mail attempt 1/5")
    assert {facts(record)[:2] for record in kept.of("forge_jobs.engine")} == {
        (jobs[0].id, "plain"),
        (jobs[1].id, "with_result"),
    }


# ------------------------------------------------------------------------------ a line per minute


async def test_u10_one_line_a_minute_says_what_ended(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="forge_jobs.worker")
    clock = MovableClock()

    class Counts:
        written = running = 0

    counts, log = Counts(), RunLog(1)
    report = MinuteReport(counts, log, ["mail", "video"], mono=clock.mono)  # type: ignore[arg-type]
    assert (await report.tick()).after_s == 60
    counts.written, log.failed, log.dead, counts.running = 1_240, 3, 1, 7
    clock.advance(60)
    await report.tick()
    counts.running = 0
    for _ in range(10):
        clock.advance(60)
        await report.tick()
    assert caplog.messages == [
        "60 s: 1,236 jobs done, 3 failed, 1 dead, 0 put off; 7 running",
        "no job in the last 10 minutes; waiting for jobs in mail, video",
    ]


# ------------------------------------------------------------------------------ cancelled jobs


@pytest.mark.parametrize("way", ["store", "handle"])
async def test_u15m_a_cancelled_job_is_not_logged_as_failed(
    forge: Forge, kept: Kept, way: str
) -> None:
    started = threading.Event()

    @forge.task(max_attempts=3)
    def stops(ctx: Context) -> None:
        started.set()
        while True:
            ctx.raise_if_cancelled()
            threading.Event().wait(0.01)

    async with forge.worker(queues=["default"]) as handle:
        job = await stops.aenqueue()
        assert await asyncio.to_thread(started.wait, 60)
        if way == "store":
            await job.acancel()
        else:
            assert handle.request_cancel(job.id)
        async with asyncio.timeout(60):
            while (await job.arefresh()).status is not JobStatus.CANCELLED:
                await asyncio.sleep(0.02)
    [line] = kept.of("forge_jobs.engine")
    assert (line.levelno, line.getMessage()) == (
        logging.INFO,
        f"job cancelled: stops {job.id} queue=default attempt 1/3",
    )


# ------------------------------------------------------------------------------ embedded workers


@pytest.mark.processes
def test_u10_an_embedded_worker_without_logging_prints_the_facts(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import asyncio
            from forge_jobs import Forge

            forge = Forge("memory://")

            @forge.task(queue="mail", max_attempts=1)
            def send(to):
                return {}[to]

            async def main():
                async with forge.worker(queues=["mail"]):
                    job = await send.aenqueue("missing")
                    print(job.id)
                    try:
                        await job.aresult(timeout=60)
                    except Exception:
                        pass

            asyncio.run(main())
            """
        )
    )
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=120, check=True
    )
    job_id = done.stdout.strip()
    first, *rest = done.stderr.splitlines()
    where = "(program.py:9)"
    assert first == (
        f"job is dead: send {job_id} queue=mail attempt 1/1: KeyError: 'missing' {where}"
    )
    assert "    return {}[to]" in rest
