"""U2: what a task declares holds, whatever the way in. Ways x options, on every shared store."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from forge_jobs import (
    Context,
    DefaultRouter,
    EnqueueRequest,
    Forge,
    HandlerRegistry,
    JobQueue,
    JobRecord,
    PayloadTooLarge,
    QueueRuntime,
    cron_tick_once,
    open_storage,
)
from forge_jobs.cli.commands import run as run_command
from forge_jobs.core.dead_letter import DeadJob
from forge_jobs.core.job import LaneOrder
from forge_jobs.core.selection import Filter
from forge_jobs.store.store import Store
from forge_jobs.web import Role, mission_control
from tests.declared.conftest import publish
from tests.web.harness import credentials, token

YEARLY = "0 0 1 1 *"
SECONDLY = "* * * * * *"
BODY = {"account": "a1"}

OPTIONS: dict[str, Callable[[JobRecord], bool]] = {
    "queue": lambda job: job.queue == "pay",
    "max_attempts": lambda job: job.max_attempts == 1,
    "priority": lambda job: job.priority == 7,
    "timeout": lambda job: job.timeout_s == 30.0,
    "soft_timeout": lambda job: (job.options or {}).get("soft_timeout_s") == 20.0,
    "tags": lambda job: "billing" in job.tags,
    "lane": lambda job: (job.lane, job.order) == ("ledger", LaneOrder.SERIAL),
    "on_dead": lambda job: (
        job.on_dead is not None
        and (job.on_dead.kind, job.on_dead.queue, job.on_dead.priority) == ("tell", "desk", -4)
    ),
    "concurrency per": lambda job: job.limit_key == "task:charge/a1",
}


@dataclass
class Ground:
    """What a way in may use: the program with the code, one without it, and the address."""

    app: Forge
    other: Forge
    url: str
    folder: Path

    async def store(self) -> Store:
        return await self.other.aready()


Way = Callable[[Ground, dict[str, Any]], Awaitable[object]]
WAYS: dict[str, Way] = {}


def way(name: str) -> Callable[[Way], Way]:
    def add(function: Way) -> Way:
        WAYS[name] = function
        return function

    return add


@way("task.enqueue")
async def by_task(ground: Ground, body: dict[str, Any]) -> None:
    await ground.app.tasks["charge"].aenqueue(**body)


@way("task.enqueue_many")
async def by_many(ground: Ground, body: dict[str, Any]) -> None:
    await ground.app.tasks["charge"].aenqueue_many([body])


@way("forge.enqueue with the code")
async def by_kind_here(ground: Ground, body: dict[str, Any]) -> None:
    await ground.app.aenqueue("charge", body)


@way("forge.enqueue without the code")
async def by_kind(ground: Ground, body: dict[str, Any]) -> None:
    await ground.other.aenqueue("charge", body)


@way("forge.enqueue without the code, sync")
async def by_kind_sync(ground: Ground, body: dict[str, Any]) -> None:
    await asyncio.to_thread(ground.other.enqueue, "charge", body)


@way("forge enqueue")
async def by_command(ground: Ground, body: dict[str, Any]) -> None:
    await _command(ground, "enqueue", "charge", _json(body))


@way("POST /api/jobs/enqueue")
async def by_http(ground: Ground, body: dict[str, Any]) -> None:
    await _post(ground, "/api/jobs/enqueue", {"kind": "charge", "payload": body})


@way("@forge.cron, by its tick")
async def by_declared_schedule(ground: Ground, body: dict[str, Any]) -> None:
    ground.app.cron(SECONDLY, name="each", payload=body)(ground.app.tasks["charge"])
    await publish(ground.app)
    await _tick(ground)


@way("@forge.cron edited by an operator, by its tick")
async def by_edited_schedule(ground: Ground, body: dict[str, Any]) -> None:
    old = Forge(ground.url)

    @old.cron(YEARLY, name="each", payload=body)
    @old.task(kind="charge", max_attempts=9, tags=["old"], priority=1)
    def charge(account: str, amount: int = 1) -> None: ...

    await publish(old)
    await old.aclose()
    await ground.other.schedules.aedit("each", expression=SECONDLY)
    ground.app.cron(YEARLY, name="each", payload=body)(ground.app.tasks["charge"])
    await publish(ground.app)
    await _tick(ground)


@way("forge cron create, by its tick")
async def by_created_schedule(ground: Ground, body: dict[str, Any]) -> None:
    await _command(ground, "cron", "create", "each", SECONDLY, "charge", "--payload", _json(body))
    await _tick(ground)


@way("forge cron create, forge cron run")
async def by_triggered_schedule(ground: Ground, body: dict[str, Any]) -> None:
    await _command(ground, "cron", "create", "each", YEARLY, "charge", "--payload", _json(body))
    await _command(ground, "cron", "run", "each")


@way("POST /api/cron, by its tick")
async def by_http_schedule(ground: Ground, body: dict[str, Any]) -> None:
    schedule = {"name": "each", "expression": SECONDLY, "kind": "charge", "payload": body}
    await _post(ground, "/api/cron", schedule)
    await _tick(ground)


@way("the page Cron, by its tick")
async def by_page(ground: Ground, body: dict[str, Any]) -> None:
    form = {"name": "each", "expression": SECONDLY, "kind": "charge", "payload": _json(body)}
    await _post(ground, "/act/cron", form=form)
    await _tick(ground)


@way("forge.schedules.create, trigger")
async def by_own_schedule(ground: Ground, body: dict[str, Any]) -> None:
    await ground.other.schedules.acreate("each", YEARLY, "charge", payload=body)
    await ground.other.schedules.atrigger("each")


@way("forge.toml of a program without the code")
async def by_file(ground: Ground, body: dict[str, Any]) -> None:
    (ground.folder / "forge.toml").write_text(
        f'[schedules.each]\ncron = "{SECONDLY}"\nkind = "charge"\n'
        + "payload = {"
        + ", ".join(f'{name} = "{value}"' for name, value in body.items())
        + "}\n"
    )
    async with ground.other.worker(queues=["elsewhere"]):
        await _tick(ground)


@way("ctx.enqueue")
async def by_context(ground: Ground, body: dict[str, Any]) -> None:
    @ground.other.task(queue="mine")
    async def start(ctx: Context) -> None:
        await ctx.aenqueue("charge", body)

    await start.aenqueue()
    await ground.other.drain(["mine"])


@way("ctx.on_done")
async def by_successor(ground: Ground, body: dict[str, Any]) -> None:
    @ground.other.task(queue="mine")
    async def start(ctx: Context) -> None:
        ctx.on_done("charge", **body)

    await start.aenqueue()
    await ground.other.drain(["mine"])


@way("QueueRuntime.enqueue")
async def by_runtime(ground: Ground, body: dict[str, Any]) -> None:
    runtime = QueueRuntime(await ground.store(), HandlerRegistry(), DefaultRouter("pay"))
    await runtime.enqueue(EnqueueRequest(kind="charge", payload=body))


@way("QueueRuntime.enqueue with the code")
async def by_runtime_here(ground: Ground, body: dict[str, Any]) -> None:
    runtime = QueueRuntime(await ground.store(), ground.app.registry, DefaultRouter("pay"))
    await runtime.enqueue(EnqueueRequest(kind="charge", payload=body))


@way("JobQueue.enqueue")
async def by_pull(ground: Ground, body: dict[str, Any]) -> None:
    def enqueue() -> None:
        with JobQueue.open(ground.url, table="pay") as queue:
            queue.enqueue("charge", body)

    await asyncio.to_thread(enqueue)


@way("forge jobs duplicate")
async def by_copy(ground: Ground, body: dict[str, Any]) -> None:
    job = await ground.app.tasks["charge"].aenqueue(**body)
    await _command(ground, "jobs", "duplicate", job.id)
    await _command(ground, "jobs", "delete", job.id, "--yes")


@pytest.fixture
async def ground(
    app: Forge, other: Forge, shared_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Ground:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    await publish(app)
    return Ground(app, other, shared_url, tmp_path)


@pytest.mark.parametrize("name", WAYS)
async def test_u2_every_declared_option_holds(ground: Ground, name: str) -> None:
    await WAYS[name](ground, BODY)
    (job,) = await _charges(ground)
    lost = [option for option, holds in OPTIONS.items() if not holds(job)]
    assert not lost, f"{name}: {lost} of {job}"


def test_u2_the_table_in_the_docs_lists_these_ways() -> None:
    page = Path("docs/declared-options.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "| yes |" in line]
    named = [line.split("|")[1].strip().replace("`", "") for line in rows]
    assert sorted(named) == sorted([*WAYS, "on_dead of another task"])


async def test_u2_an_on_dead_job_has_what_its_task_declares(
    ground: Ground, shared_url: str
) -> None:
    app = Forge(shared_url)

    @app.task(
        queue="pay",
        max_attempts=1,
        priority=7,
        timeout="30s",
        soft_timeout="20s",
        tags=["billing"],
        lane="ledger",
        concurrency=2,
        per="args.job.kind",
    )
    def bury(job: DeadJob) -> None: ...

    @app.task(queue="mine", max_attempts=1, on_dead=bury)
    def fail() -> None:
        raise OSError

    await publish(app)
    await ground.other.aenqueue("fail", {})
    await app.drain(["mine"])
    page = await (await ground.store()).jobs.page(Filter(kind="bury"), limit=2)
    (job,) = page.jobs
    assert job.limit_key == "task:bury/fail"
    expected = [name for name in OPTIONS if name not in ("on_dead", "concurrency per")]
    assert [name for name in expected if not OPTIONS[name](job)] == []
    await app.aclose()


@pytest.mark.parametrize("name", WAYS)
async def test_u2_no_way_in_takes_a_payload_above_the_declared_limit(
    ground: Ground, name: str
) -> None:
    with contextlib.suppress(PayloadTooLarge, Refusal):
        await WAYS[name](ground, {"account": "a" * 200})
    assert await _charges(ground) == []


async def test_u2_a_copy_with_another_payload_keeps_to_the_declared_limit(ground: Ground) -> None:
    job = await ground.app.tasks["charge"].aenqueue(**BODY)
    path = f"/api/jobs/duplicate/{job.id}"
    await _post(ground, path, {"payload": {"account": "a2"}})
    with pytest.raises(Refusal, match="the limit is 200"):
        await _post(ground, path, {"payload": {"account": "a" * 200}})
    copies = {record.limit_key: record for record in await _charges(ground)}
    assert sorted(map(str, copies)) == ["task:charge/a1", "task:charge/a2"]
    lost = [option for option, holds in OPTIONS.items() if not holds(copies["task:charge/a2"])]
    assert lost == ["concurrency per"]


class Refusal(Exception):
    """A command or a route refused."""


async def _command(ground: Ground, *words: str) -> None:
    code = await asyncio.to_thread(run_command, [*words, "--url", ground.url])
    if code != 0:
        raise Refusal(f"exit {code}")


async def _post(
    ground: Ground,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    form: dict[str, str] | None = None,
) -> None:
    web = mission_control(ground.other, auth=credentials())
    transport = httpx.ASGITransport(web, client=("10.1.2.3", 4711))
    headers = {"authorization": f"Bearer {token(Role.ADMIN)}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://jobs.example", headers=headers
    ) as client:
        reply = await client.post(path, json=body, data=form)
    if reply.status_code >= 400:
        raise Refusal(reply.text)


async def _tick(ground: Ground) -> None:
    """Fire the schedule ``each`` from a process without the code."""
    store = open_storage(ground.url)
    await store.open()
    try:
        async with asyncio.timeout(30):
            while not (await cron_tick_once(store)).fired and not await _charges(ground):
                if not (await ground.other.schedules.aget("each")).enabled:
                    return
                await asyncio.sleep(0.1)
        await ground.other.schedules.adisable("each")
    finally:
        await store.close()


async def _charges(ground: Ground) -> list[JobRecord]:
    page = await (await ground.store()).jobs.page(Filter(kind="charge"), limit=100)
    return list(page.jobs)


def _json(body: dict[str, Any]) -> str:
    inner = ", ".join(f'"{name}": "{value}"' for name, value in body.items())
    return "{" + inner + "}"
