"""P: what rows of docs/parity.md say since they were corrected, each by the number of its row.

Rows 34, 44, 53 and 63 have theirs beside what they are about: tests named ``test_p34_…`` and so on.
"""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from forge_jobs import (
    BadCron,
    BadOption,
    Context,
    Forge,
    Retry,
    Unavailable,
    metrics_roll_once,
    prometheus_text,
)
from forge_jobs.core import cron
from forge_jobs.core.instant import from_datetime, to_datetime
from forge_jobs.ops import metrics
from forge_jobs.ops.doctor import examine
from forge_jobs.web import mission_control


async def test_p13_keys_of_two_kinds_never_meet(forge: Forge) -> None:
    @forge.task
    async def invoice() -> None: ...

    @forge.task
    async def receipt() -> None: ...

    first = await invoice.using(dedupe_key="42").aenqueue()
    other = await receipt.using(dedupe_key="42").aenqueue()
    again = await invoice.using(dedupe_key="42").aenqueue()
    assert (first.duplicate, other.duplicate, again.duplicate) == (False, False, True)
    assert again.id == first.id


async def test_p64_an_enqueue_is_not_repeated_by_itself(
    forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    @forge.task
    async def work() -> None: ...

    store: Any = await forge.aready()
    calls: list[object] = []

    async def fails(jobs: object) -> Any:
        calls.append(jobs)
        raise Unavailable("the store is away")

    # SQLite writes a lone call on its own path; two jobs take the contract's call everywhere.
    monkeypatch.setattr(store.jobs, "enqueue", fails)
    with pytest.raises(Unavailable):
        await work.aenqueue_many([(), ()])
    assert len(calls) == 1


async def test_p66_a_context_has_the_id_of_its_process_and_none_of_a_slot(forge: Forge) -> None:
    @forge.task(queue="q")
    async def names(ctx: Context) -> tuple[str, bool]:
        return ctx.host_id, hasattr(ctx, "process_id")

    async with forge.worker(queues=["q"]):
        job = await names.aenqueue()
        assert tuple(await job.aresult(timeout=30)) == (
            (await (await forge.aready()).processes.all())[0].host_id,
            False,
        )


@pytest.mark.parametrize(
    ("expression", "day"),
    [
        # Weekdays count from Sunday = 0: 2026-01-01 is a Thursday.
        ("0 9 * * 2", 6),
        ("0 9 * * 0", 4),
        # Either of two given day fields is enough: the 20th, or a Friday.
        ("0 9 20 * 5", 2),
    ],
)
def test_p76_weekdays_and_day_fields(expression: str, day: int) -> None:
    since = from_datetime(datetime(2026, 1, 1, 12, tzinfo=UTC), field="since")
    tick = cron.read(expression, "UTC").next_after(since)
    assert tick is not None
    assert to_datetime(tick) == datetime(2026, 1, day, 9, tzinfo=UTC)


def test_p76_there_is_no_year_field() -> None:
    with pytest.raises(BadCron):
        cron.read("0 0 9 1 1 * 2027", "UTC")


async def test_p98_p99_p100_the_series_that_the_pages_name(project_root: Path) -> None:
    """One histogram of round trips, no series of connections, and every name that a user of the
    original is told to look for."""
    forge = Forge("memory://")

    @forge.task(queue="mail")
    async def send() -> None: ...

    async with forge.worker(queues=["mail"]):
        job = await send.aenqueue()
        await job.aresult(timeout=30)
    await send.aenqueue()
    found = {one.name: one for one in text_string_to_metric_families(
        await prometheus_text(await forge.aready())
    )}  # fmt: skip
    page = (project_root / "docs" / "coming-from-the-original.md").read_text()
    table = page.partition("### Prometheus names")[2].partition("###")[0]
    told = [
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"forge_\w+", line)
    ]
    assert len(told) == 5
    assert [name for name in told if name not in found] == []
    of_the_store = {name: one.type for name, one in found.items() if "store" in name}
    assert list(of_the_store.values()).count("histogram") == 1
    assert [name for name in found if "connection" in name] == []
    await forge.aclose()


async def test_p99_connections_are_a_line_of_the_doctor(shared_url: str) -> None:
    async with Forge(shared_url) as forge:
        subjects = [finding.subject for finding in await examine(await forge.aready())]
        assert subjects.count("connections") == shared_url.startswith("postgresql")


async def test_p103_routes_are_below_api_and_an_enqueue_answers_an_object(forge: Forge) -> None:
    """The original answered an enqueue with the bare id."""

    @forge.task
    async def work() -> None: ...

    transport = httpx.ASGITransport(mission_control(forge), client=("127.0.0.1", 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        paths = (await client.get("/api/openapi.json")).json()["paths"]
        reply = await client.post("/api/jobs/enqueue", json={"kind": "work", "payload": {}})
    assert [path for path in paths if not path.startswith("/api/")] == ["/metrics"]
    assert "/api/queue/overview" in paths
    assert reply.is_success
    answer = reply.json()
    assert (answer["duplicate"], answer["status"]) == (False, "pending")
    assert (await forge.job(answer["id"]).arefresh()).kind == "work"


async def test_p107_series_have_steps_of_whole_minutes(forge: Forge) -> None:
    @forge.task
    async def work() -> None: ...

    await work.aenqueue()
    await forge.drain()
    store = await forge.aready()
    await metrics_roll_once(store)
    until = datetime.now(UTC) + timedelta(minutes=1)
    since = until - timedelta(minutes=5)
    for step_s in (1, 30, 90):
        with pytest.raises(BadOption, match="whole number of minutes"):
            await metrics.series(store, since=since, until=until, step_s=step_s)
    series = await metrics.series(store, since=since, until=until)
    assert sum(point.done for point in series.points) == 1


@pytest.mark.parametrize(("retry", "wait_s"), [(None, 15.0), (Retry(delays=["0s"]), 0.0)])
async def test_p_a_queue_without_back_off_waits_the_default(
    any_url: str, retry: Retry | None, wait_s: float
) -> None:
    """``backoff_enabled`` is off for every queue that nobody changed, and does not mean "at
    once"."""
    forge = Forge(any_url)
    options: dict[str, Any] = {} if retry is None else {"retry": retry}

    @forge.task(queue="q", max_attempts=2, **options)
    async def fails() -> None:
        raise OSError

    store = await forge.aready()
    await store.queues.ensure("q", slots=1)
    config = await store.queues.get("q")
    assert config is not None
    assert config.backoff_enabled is False
    job = await fails.aenqueue()
    async with forge.worker(queues=["q"]):
        async with asyncio.timeout(30):
            while not (await job.arefresh()).errors:
                await asyncio.sleep(0.02)
    first = job.errors[0]
    if wait_s:
        waited_s = (from_datetime(job.run_at, field="run_at") - first.at) / 1_000_000
        assert wait_s * 0.9 - 0.5 <= waited_s <= wait_s * 1.1 + 0.5
    else:
        assert from_datetime(job.run_at, field="run_at") - first.at < 1_000_000
    await forge.aclose()
