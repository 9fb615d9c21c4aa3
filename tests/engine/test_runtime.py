"""The lower-level runtime: names, queues, publishing, handles."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.backends.url import open_store
from forge_jobs.core.errors import (
    BadConfig,
    BadName,
    BadOption,
    BadPayload,
    BadTime,
    KindTaken,
    NoQueues,
)
from forge_jobs.core.outcome import Snooze
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.liveness.label import worker_label
from forge_jobs.engine.requests.routing import DefaultRouter, KindPrefixRouter
from forge_jobs.engine.running.context import Context
from forge_jobs.engine.running.registry import HandlerRegistry
from forge_jobs.engine.runtime import EnqueueRequest, QueueRuntime
from tests.engine.rig import FAST, Rig


class Echo:
    kind = "echo"

    async def run(self, ctx: Context, payload: Any) -> Any:
        if payload.get("later"):
            return Snooze("1h")
        return [ctx.job.kind, ctx.job.queue, payload]


def _runtime(rig: Rig, **options: Any) -> QueueRuntime:
    return QueueRuntime(rig.store, rig.registry, settings=FAST, **options)


async def test_a_handler_object_runs_with_context_and_payload(rig: Rig) -> None:
    rig.registry.register(Echo())
    runtime = _runtime(rig).with_queues(["default"])
    async with runtime as handle:
        job = await handle.enqueue(EnqueueRequest(kind="echo", payload={"a": 1}))
        record = await rig.reaches(job.id)
        assert record.result == b'["echo","default",{"a":1}]'
        put_off = await runtime.enqueue(EnqueueRequest(kind="echo", payload={"later": True}))
        assert (await rig.reaches(put_off.id, JobStatus.SCHEDULED)).attempts == 0


def test_a_kind_registered_twice_is_an_error() -> None:
    registry = HandlerRegistry()
    registry.register(Echo())
    with pytest.raises(KindTaken, match="'echo' is registered twice"):
        registry.register(Echo())


async def test_the_error_of_a_worker_without_queues_names_the_remedy(rig: Rig) -> None:
    for queues in ([], ["", "  "], {}):
        with pytest.raises(NoQueues, match=r"with_queues.*FORGE_QUEUES"):
            await _runtime(rig).with_queues(queues).start()
    with pytest.raises(NoQueues):
        await _runtime(rig).start()


@pytest.mark.parametrize("name", ["a b", "-a", "a/b", "x" * 64, "mail:many"])
async def test_bad_queue_names_are_refused(rig: Rig, name: str) -> None:
    with pytest.raises((BadName, BadConfig)):
        _runtime(rig).with_queues([name])
    with pytest.raises(BadName):
        await _runtime(rig).ensure_queue(name, 1)


async def test_declared_queues_get_their_settings_but_never_lose_an_operators(rig: Rig) -> None:
    await rig.store.queues.ensure("video", slots=7)
    runtime = _runtime(rig).with_queues(["mail:20", "video:2", " mail:20 ", "plain", ""])
    async with runtime:
        slots = {config.name: config.slots for config in await rig.store.queues.all()}
        assert slots == {"mail": 20, "plain": 10, "video": 7}
        (process,) = await rig.store.processes.all()
        assert process.queues == ("mail", "video", "plain")


async def test_kinds_are_published_with_their_queue(rig: Rig) -> None:
    rig.on("gh_sync", lambda ctx, given: None)
    rig.on("send", lambda ctx, given: None, queue="mail")
    rig.on("other", lambda ctx, given: None)
    async with _runtime(rig, router=KindPrefixRouter()).with_queues(["gh", "mail", "default"]):
        assert await rig.store.queues.kinds() == {
            "gh_sync": "gh",
            "send": "mail",
            "other": "default",
        }


async def test_the_worker_is_called_by_prefix_version_and_id(rig: Rig) -> None:
    runtime = (
        _runtime(rig)
        .with_queues(["q"])
        .with_worker_prefix("shop")
        .with_worker_version("1.4")
        .with_worker_id("blue")
    )
    async with runtime:
        (process,) = await rig.store.processes.all()
        assert (process.label, process.version) == ("shop-worker-1.4-blue", "1.4")


async def test_u15l_a_default_worker_is_called_by_machine_and_process(rig: Rig) -> None:
    async with _runtime(rig).with_queues(["q"]):
        (process,) = await rig.store.processes.all()
        assert process.label == f"{socket.gethostname()}-{os.getpid()}"
        assert process.label != process.host_id


def test_labels() -> None:
    def label(prefix: str | None, version: str | None, worker_id: str | None) -> str:
        return worker_label(
            "01HOST", prefix=prefix, version=version, worker_id=worker_id, hostname="web", pid=7
        )

    assert label(None, "1", "a") == "a"
    assert label(None, "1", None) == "web-7"
    assert label("shop", None, "a") == "shop-worker-a"
    generated = label("shop", None, None)
    assert generated == label("shop", None, None)
    assert len(generated.removeprefix("shop-worker-")) == 4
    int(generated.removeprefix("shop-worker-"), 16)


def test_routers() -> None:
    assert DefaultRouter().route("anything") == "default"
    assert DefaultRouter("mail").route("anything") == "mail"
    router = KindPrefixRouter({"a_": "a", "a_b_": "b"}, default="rest")
    assert [router.route(kind) for kind in ("a_x", "a_b_x", "x")] == ["a", "b", "rest"]
    with pytest.raises(BadName):
        DefaultRouter("no good")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"kind": "1 bad"}, BadName),
        ({"queue": "no good"}, BadName),
        ({"max_attempts": 0}, BadOption),
        ({"payload": object()}, BadPayload),
        ({"dedupe_key": ""}, BadName),
        ({"tags": ("a,b",)}, BadName),
    ],
)
async def test_bad_requests_are_refused(changes: dict[str, Any], error: type[Exception]) -> None:
    runtime = QueueRuntime(MemoryStore(), HandlerRegistry())
    with pytest.raises(error):
        await runtime.enqueue(EnqueueRequest(**{"kind": "work", **changes}))


async def test_times_of_requests(rig: Rig) -> None:
    from datetime import UTC, datetime, timedelta

    runtime = _runtime(rig)
    moment = datetime.now(UTC) + timedelta(hours=1)
    job = await runtime.enqueue(EnqueueRequest(kind="work", scheduled_at=moment, tags=("vip",)))
    record = await rig.record(job.id)
    assert (record.status, record.tags) == (JobStatus.SCHEDULED, ("vip",))
    assert record.run_at == int(moment.timestamp() * 1_000_000)
    with pytest.raises(BadTime):
        await runtime.enqueue(EnqueueRequest(kind="work", scheduled_at=datetime(2030, 1, 1)))
    with pytest.raises(BadOption, match="not both"):
        await runtime.enqueue(EnqueueRequest(kind="work", scheduled_at=moment, delay=1))


async def test_duplicates_are_reported(rig: Rig) -> None:
    runtime = _runtime(rig)
    first = await runtime.enqueue(EnqueueRequest(kind="work", dedupe_key="k"))
    second = await runtime.enqueue(EnqueueRequest(kind="work", dedupe_key="k"))
    assert (first.duplicate, second.duplicate) == (False, True)
    assert first.id == second.id


async def test_a_successor_takes_over_from_the_process_it_replaces(rig: Rig) -> None:
    from forge_jobs.store.jobs import Exchange, Want
    from forge_jobs.store.processes import NewProcess

    rig.on("work", lambda ctx, given: None)
    job_id = await rig.add("work")
    owner = await rig.store.processes.register(
        NewProcess(host_id="old", label="old", queues=("q",), pid=1, hostname="h", lease_s=600)
    )
    await rig.store.jobs.exchange(Exchange(owner=owner, number=1, want=[Want("q", 1)]))
    async with rig.runtime().with_replaced("old"):
        record = await rig.reaches(job_id)
    assert (record.status, record.attempts) == (JobStatus.DONE, 2)


async def test_a_worker_opens_its_store(tmp_path: Path) -> None:
    """Job ids carry the database's tag, which is only known once the store is open."""
    rig = Rig(open_store(f"sqlite:///{tmp_path}/fresh.db"))

    async def body(ctx: Context, given: Any) -> str:
        return ctx.job.id

    rig.on("work", body)
    async with rig.working():
        record = await rig.runs("work")
        assert record.result == f'"{record.id}"'.encode()
    await rig.store.close()


async def test_a_worker_that_cannot_start_leaves_nothing_behind(rig: Rig) -> None:
    import asyncio

    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(rig.store, name)

        @property
        def queues(self) -> Any:
            class Queues:
                def __getattr__(self, name: str) -> Any:
                    return getattr(rig.store.queues, name)

                async def all(self) -> Any:
                    raise RuntimeError("no")

            return Queues()

    before = set(asyncio.all_tasks())
    with pytest.raises(RuntimeError, match="no"):
        await QueueRuntime(Broken(), rig.registry).with_queues(["q"]).start()  # type: ignore[arg-type]
    assert await rig.store.processes.all() == []
    # The store notifies others of the deregistration after the call has returned.
    async with asyncio.timeout(30):
        while set(asyncio.all_tasks()) != before:
            await asyncio.sleep(0.01)


async def test_a_custom_router_names_the_queues(rig: Rig) -> None:
    class ByLength:
        def route(self, kind: str) -> str:
            return f"long{len(kind)}"

    async def body(ctx: Context, given: Any) -> str:
        return (await ctx.aenqueue("elsewhere", {})).id

    rig.on("work", body, queue="q")
    rig.on("unnamed", body)
    runtime = QueueRuntime(rig.store, rig.registry, ByLength(), settings=FAST).with_queues(["q"])
    async with runtime as handle:
        assert await rig.store.queues.kinds() == {"work": "q", "unnamed": "long7"}
        sent = await handle.enqueue(EnqueueRequest(kind="someone"))
        assert (await rig.record(sent.id)).queue == "long7"
        own = await rig.runs("work")
        elsewhere = await rig.record((own.result or b"").decode().strip('"'))
        assert elsewhere.queue == "long9"


async def test_the_prefix_router_has_the_names_of_the_original() -> None:
    router = KindPrefixRouter()
    kinds = ("gh_sync", "slack_post", "other")
    assert [router.route(kind) for kind in kinds] == ["gh", "slack", "default"]
