"""What workers add to the metrics: times and process samples, and nothing when metrics are off."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import EngineSettings, Forge, metrics_roll_once
from forge_jobs.config import BadConfig, metrics_from_env
from forge_jobs.core.counters import Minute
from forge_jobs.core.histogram import EMPTY, histogram
from forge_jobs.core.instant import MINUTE, to_datetime
from forge_jobs.core.vitals import Vitals
from forge_jobs.engine.claiming.store_latency import StoreLatency
from forge_jobs.engine.liveness.usage import Cores, Usage, read_usage
from forge_jobs.engine.services.roll_up import RollUp
from forge_jobs.engine.services.vitals import VitalsReport
from forge_jobs.ops import metrics
from forge_jobs.testing.clock import MovableClock
from rigs.storms.counters import compare, every_job

DEADLINE_S = 60


@pytest.fixture
async def forge(tmp_path: Path) -> AsyncIterator[Forge]:
    async with Forge(f"sqlite:///{tmp_path}/jobs.db") as made:
        yield made


async def _worked(forge: Forge, **settings: Any) -> Minute:
    @forge.task(queue="q", kind="nap")
    async def nap() -> None:
        await asyncio.sleep(0.05)

    jobs = await nap.aenqueue_many([()] * 6)
    await asyncio.sleep(0.2)
    async with forge.worker(queues=["q:2"], settings=EngineSettings(**settings)):
        for job in jobs:
            await job.aresult(timeout=DEADLINE_S)
    [total] = await forge.store.metrics.totals()
    return total


async def test_a_worker_reports_how_long_jobs_waited_ran_and_took(forge: Forge) -> None:
    total = await _worked(forge)
    assert (total.enqueued, total.done) == (6, 6)
    assert total.waited.count == total.ran.count == total.took.count == 6
    # Two at a time: each pair waits for the one before it.
    assert total.ran.quantile(0.5) > 0.025
    assert total.waited.sum_s > 6 * 0.15
    assert total.took.sum_s > total.waited.sum_s
    assert total.took.sum_s >= total.ran.sum_s


async def test_without_metrics_only_counters_are_kept(forge: Forge) -> None:
    total = await _worked(forge, metrics=False)
    assert (total.enqueued, total.started - total.released, total.done) == (6, 6, 6)
    assert total.waited == total.ran == total.took == EMPTY
    now = forge.clock.now()
    assert await forge.store.metrics.vitals(since=now - 60 * MINUTE, until=now + MINUTE) == []


def test_the_switch_is_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert metrics_from_env({}) is True
    assert metrics_from_env({"FORGE_METRICS": "0"}) is False
    with pytest.raises(BadConfig, match="FORGE_METRICS"):
        metrics_from_env({"FORGE_METRICS": "perhaps"})
    monkeypatch.setenv("FORGE_METRICS", "0")
    assert EngineSettings().metrics is False


async def test_P17_counters_equal_the_rows_whoever_rolls_up_and_when(forge: Forge) -> None:
    @forge.task(queue="q", max_attempts=2)
    async def work(n: int) -> int:
        if n % 7 == 0:
            raise ValueError
        return n

    await forge.aready()
    folders = [RollUp(forge.store) for _ in range(3)]
    async with forge.worker(queues=["q:20"]):
        for first in range(0, 300, 50):
            await work.aenqueue_many([(first + n,) for n in range(50)])
            await asyncio.gather(*(folder.tick() for folder in folders))
        end = time.monotonic() + DEADLINE_S
        while sum(total.done for total in await forge.store.metrics.totals()) < 257:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
    jobs = await every_job(forge.store)
    assert await compare(forge.store, jobs, "unfolded") == []
    await metrics_roll_once(forge.store)
    assert await compare(forge.store, jobs, "folded") == []


async def test_writers_roll_up_where_no_service_does(forge: Forge, tmp_path: Path) -> None:
    store = await forge.aready()
    # Two thousand lines as a program without workers would leave them, then real writes.
    connection = sqlite3.connect(tmp_path / "jobs.db")
    line = '[{"at":60000000,"queue":"q","kind":"k","done":1}]'
    with connection:
        connection.executemany(
            "INSERT INTO forge_counter_entries (data) VALUES (?)", [(line,)] * 2_047
        )

    @forge.task(queue="q", kind="k")
    async def work() -> None: ...

    await work.aenqueue_many([()] * 10)
    [left] = connection.execute("SELECT count(*) FROM forge_counter_entries").fetchone()
    connection.close()
    assert left < 10
    [total] = await store.metrics.totals()
    assert (total.done, total.enqueued) == (2_047, 10)


async def test_A11_every_process_reports_for_itself(forge: Forge) -> None:
    store = await forge.aready()
    clock = MovableClock()
    store_latency = {name: StoreLatency() for name in "ab"}
    usage = {"a": Usage(), "b": Usage()}

    def report(name: str) -> VitalsReport:
        def identity() -> tuple[str, str]:
            return (f"host-{name}", name)

        def used() -> Usage:
            return usage[name]

        return VitalsReport(
            store.metrics,
            identity=identity,
            running=lambda: 3,
            store_latency=store_latency[name],
            usage=used,
            clock=clock,
            store_now=clock.now,
        )

    reports = {name: report(name) for name in "ab"}
    for tick in reports.values():
        await tick.tick()
    clock.advance(10)
    store_latency["a"].add(0.002)
    store_latency["a"].failed()
    usage["a"] = Usage(5.0, 70 << 20, 100, 200, 0.25)
    usage["b"] = Usage(1.0, 60 << 20, 1, 2, 0.25)
    for tick in reports.values():
        await tick.tick()
    at = clock.now() - clock.now() % MINUTE
    found = await store.metrics.vitals(since=at - MINUTE, until=at + MINUTE)
    assert found == [
        Vitals(
            at=at, host_id="host-a", label="a", cpu_s=5.0, span_s=10.0, memory_bytes=70 << 20,
            disk_read_bytes=100, disk_write_bytes=200, disk_share=0.25, running=3,
            exchange=histogram([0.002]), errors=1,
        ),
        Vitals(
            at=at, host_id="host-b", label="b", cpu_s=1.0, span_s=10.0, memory_bytes=60 << 20,
            disk_read_bytes=1, disk_write_bytes=2, disk_share=0.25, running=3,
        ),
    ]  # fmt: skip
    first, second = await metrics.hosts(
        store, since=to_datetime(at - MINUTE), until=to_datetime(at + MINUTE)
    )
    assert [(host.label, host.points[0].cores) for host in (first, second)] == [
        ("a", 0.5),
        ("b", 0.1),
    ]
    assert first.points[0].exchange.count == 1


def test_this_process_can_be_measured() -> None:
    before = read_usage()
    assert before.memory_bytes > 1_000_000
    assert 0.0 <= before.disk_share <= 1.0
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    assert read_usage().cpu_s > before.cpu_s
    seconds = iter([1.0, 3.0, 3.0])
    cores = Cores(lambda: next(seconds))
    assert [cores.of(10.0), cores.of(11.0), cores.of(12.0)] == [0.0, 0.5, 0.0]


async def test_the_exchange_loop_measures_store_latency() -> None:
    store_latency = StoreLatency()
    assert store_latency.take() == (EMPTY, 0)
    for span in (0.001, 0.003):
        store_latency.add(span)
    store_latency.failed()
    assert store_latency.take() == (histogram([0.001, 0.003]), 1)
    assert store_latency.take() == (EMPTY, 0)
