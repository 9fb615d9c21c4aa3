"""Prometheus text of the metrics, read back by the parser of prometheus_client."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from forge_jobs import BadOption, Context, Forge, Snooze, Throttled, metrics_roll_once
from forge_jobs.cli.health_port import HealthResponder, bind, serve_health
from forge_jobs.core.counters import Minute
from forge_jobs.core.histogram import histogram
from forge_jobs.core.vitals import LIFETIME, Vitals
from forge_jobs.kit.clock import SystemClock
from forge_jobs.ops import metrics, prometheus
from forge_jobs.ops.prometheus import StoreSnapshot, prometheus_text

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(text: str) -> tuple[Samples, dict[str, str]]:
    samples: Samples = {}
    kinds: dict[str, str] = {}
    for family in text_string_to_metric_families(text):
        kinds[family.name] = family.type
        for sample in family.samples:
            name = (sample.name, tuple(sorted(sample.labels.items())))
            assert name not in samples
            samples[name] = sample.value
    return samples, kinds


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


@pytest.fixture
async def forge() -> AsyncIterator[Forge]:
    async with Forge("memory://") as made:
        yield made


async def test_gauges_counters_and_histograms_agree_with_the_store(forge: Forge) -> None:
    @forge.task(queue="mail", max_attempts=1)
    async def send(n: int) -> None:
        if n == 0:
            raise ValueError
        if n == 1:
            raise Snooze(3_600)

    await send.aenqueue_many([(n,) for n in range(6)])
    await forge.drain()
    await send.aenqueue(9)
    samples, kinds = read(await prometheus_text(forge.store))
    for status, jobs in {"done": 4, "dead": 1, "scheduled": 1, "pending": 1, "failed": 0}.items():
        assert value(samples, "forge_jobs", queue="mail", status=status) == jobs
    own = {"queue": "mail", "kind": "send"}
    for event, count in {"enqueued": 7, "started": 6, "done": 4, "dead": 1, "released": 1}.items():
        assert value(samples, f"forge_jobs_{event}_total", **own) == count
        assert kinds[f"forge_jobs_{event}"] == "counter"
    for name, count in {"wait": 6, "run": 6, "total": 4}.items():
        family = f"forge_job_{name}_seconds"
        assert kinds[family] == "histogram"
        assert value(samples, f"{family}_count", **own) == count
        assert value(samples, f"{family}_bucket", **own, le="+Inf") == count
        bounds = [
            value(samples, f"{family}_bucket", **own, le=f"{le:g}")
            for le in prometheus.BUCKET_BOUNDS_S
        ]
        assert bounds == sorted(bounds)
    assert value(samples, "forge_queue_oldest_due_seconds", queue="mail") >= 0
    assert value(samples, "forge_workers") == 0


async def test_closed_scopes_and_permits_are_shown(forge: Forge) -> None:
    forge.rate_limit("smtp", "50/m")

    @forge.task(queue="q", scopes=["api"])
    async def work(ctx: Context) -> None:
        await ctx.rate_limit.acquire("smtp")
        raise Throttled(retry_after=60, scope="api")

    async with forge.worker(queues=["q"]):
        await work.aenqueue()
        end = asyncio.get_running_loop().time() + 20
        while True:
            samples, _ = read(await prometheus_text(forge.store))
            if ("forge_scope_throttled", (("scope", "api"),)) in samples:
                break
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.05)
    assert value(samples, "forge_scope_throttled", scope="api") == 1
    assert 0 <= value(samples, "forge_rate_limit_permits", scope="smtp") <= 49


async def test_workers_show_what_they_use(forge: Forge) -> None:
    @forge.task(queue="q")
    async def work() -> None: ...

    async with forge.worker(queues=["q:3"]) as handle:
        await (await work.aenqueue()).aresult(timeout=60)
        end = asyncio.get_running_loop().time() + 20
        while True:
            text = await prometheus_text(forge.store)
            if "forge_worker_memory_bytes{worker=" in text and "bytes 0" not in text:
                break
            assert asyncio.get_running_loop().time() < end, text
            await asyncio.sleep(0.05)
        samples, _ = read(text)
        [label] = {
            dict(labels)["worker"]
            for (name, labels) in samples
            if name == "forge_worker_memory_bytes"
        }
        who = {"worker": label, "host_id": handle.host_id}
        assert value(samples, "forge_worker_memory_bytes", **who) > 1_000_000
        assert 0 <= value(samples, "forge_worker_disk_used_ratio", **who) <= 1
        assert value(samples, "forge_queue_slots", queue="q") == 3
        assert value(samples, "forge_queue_workers", queue="q") == 1


def test_odd_names_are_escaped() -> None:
    total = Minute(at=0, queue='a"b\\c', kind="d\ne", done=1, ran=histogram([0.5]))
    trips = Vitals(at=LIFETIME, host_id="", exchange=histogram([0.001, 0.002]), errors=3)
    samples, kinds = read(prometheus.render(StoreSnapshot([], [], [total], trips)))
    own = {"queue": 'a"b\\c', "kind": "d\ne"}
    assert value(samples, "forge_jobs_done_total", **own) == 1
    assert value(samples, "forge_job_run_seconds_sum", **own) == 0.5
    assert value(samples, "forge_job_run_seconds_bucket", **own, le="0.5") == 0
    assert value(samples, "forge_job_run_seconds_bucket", **own, le="1") == 1
    assert kinds["forge_store_exchange_seconds"] == "histogram"
    assert value(samples, "forge_store_exchange_seconds_bucket", le="0.0025") == 2
    assert value(samples, "forge_store_exchange_seconds_count") == 2
    assert value(samples, "forge_store_exchange_errors_total") == 3


async def test_series_and_kinds_follow_the_counters(forge: Forge) -> None:
    @forge.task(queue="q")
    async def work() -> None: ...

    await work.aenqueue_many([()] * 5)
    await forge.drain()
    assert (await metrics_roll_once(forge.store)).rounds >= 1
    told = await metrics.recent_minutes(forge.store, minutes=3)
    assert len(told.points) == 3
    assert sum(point.done for point in told.points) == 5
    assert sum(point.ran.count for point in told.points) == 5
    whole = await metrics.series(
        forge.store, since=told.points[0].at, until=told.points[-1].at, step_s=600, kind="none"
    )
    assert [point.done for point in whole.points] == [0]
    seen = await metrics.by_kind(
        forge.store, since=told.points[0].at, until=told.points[-1].at.replace(year=2100)
    )
    assert [(view.queue, view.kind, view.whole.done) for view in seen] == [("q", "work", 5)]


@pytest.mark.parametrize(("step_s", "words"), [(90, "whole number of minutes"), (60, "2,000")])
async def test_bad_ranges_are_refused(forge: Forge, step_s: int, words: str) -> None:
    [now] = (await metrics.recent_minutes(forge.store, minutes=1)).points
    with pytest.raises(BadOption, match=words):
        await metrics.series(
            forge.store, since=now.at, until=now.at.replace(year=2100), step_s=step_s
        )


async def test_the_health_port_serves_metrics(forge: Forge) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    broken = False

    async def page() -> str:
        if broken:
            raise OSError("password=sesame")
        return await prometheus_text(forge.store)

    clock = _SkippingClock()
    responder = HealthResponder(lambda: True, page, clock)
    [server] = await serve_health("127.0.0.1", port, bind("127.0.0.1", port), responder, clock)
    head, body = await _get(port, "GET /metrics HTTP/1.1")
    assert "200 OK" in head
    assert "text/plain; version=0.0.4" in head
    assert "forge_workers" in {name for name, _ in read(body)[0]}
    assert (await _get(port, "HEAD /metrics HTTP/1.1"))[1] == ""
    assert "405" in (await _get(port, "POST /metrics HTTP/1.1"))[0]
    assert (await _get(port, "GET /readyz HTTP/1.1"))[1] == "ok\n"
    broken = True
    # The text of the last second is used again.
    assert "200 OK" in (await _get(port, "GET /metrics HTTP/1.1"))[0]
    clock.skipped_s = 2.0
    head, body = await _get(port, "GET /metrics HTTP/1.1")
    assert "503" in head
    assert "sesame" not in body
    server.close()
    await server.wait_closed()


class _SkippingClock(SystemClock):
    skipped_s = 0.0

    def mono(self) -> float:
        return super().mono() + self.skipped_s


async def _get(port: int, request: str) -> tuple[str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{request}\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return head, body
