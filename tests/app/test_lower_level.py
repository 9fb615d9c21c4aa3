"""The lower-level names together: a runtime built by hand, without a Forge."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import (
    BadTime,
    BadUrl,
    EnqueueRequest,
    HandlerRegistry,
    JobCtx,
    JobOutcome,
    JobRecord,
    JobStatus,
    KindPrefixRouter,
    NoQueues,
    QueueRuntime,
    RateLimiter,
    cleanup_once,
    open_storage,
    reap_stale_jobs,
)


class Echo:
    kind = "gh_echo"

    async def run(self, ctx: JobCtx, payload: Any) -> JobOutcome | Any:
        if payload == "die":
            return JobOutcome.Dead("as asked")
        return {"heard": payload, "in": ctx.job.queue}


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_a_runtime_built_by_hand(backend: str, tmp_path: Path) -> None:
    url = "memory://" if backend == "memory" else f"sqlite:///{tmp_path}/forge.db"
    storage = open_storage(url)
    handlers = HandlerRegistry()
    handlers.register(Echo())
    runtime = (
        QueueRuntime(storage, handlers, KindPrefixRouter())
        .with_queues(["gh:3"])
        .with_worker_prefix("hand")
        .with_worker_version("1")
        .with_worker_id("7")
    )
    await storage.open()
    await runtime.ensure_queue("gh", 2)
    early = await runtime.enqueue(EnqueueRequest(kind="gh_echo", payload="early"))
    handle = await runtime.start()
    try:
        died = await handle.enqueue(EnqueueRequest(kind="gh_echo", payload="die"))
        later = await handle.enqueue(
            EnqueueRequest(kind="gh_echo", scheduled_at=datetime.now(UTC) + timedelta(hours=1))
        )
        assert isinstance(handle.rate_limit, RateLimiter)
        with pytest.raises(BadTime):
            await handle.enqueue(EnqueueRequest(kind="a", scheduled_at=datetime(2031, 1, 1)))
        async with asyncio.timeout(60):
            while (record := await handle.storage.jobs.get(died.id)) is None or (
                record.status is not JobStatus.DEAD
            ):
                await asyncio.sleep(0.01)
        (process,) = await storage.processes.all()
        assert process.label == "hand-worker-1-7"
    finally:
        await handle.shutdown_graceful(5)
    record = await storage.jobs.get(early.id)
    assert isinstance(record, JobRecord)
    assert (record.status, record.queue) == (JobStatus.DONE, "gh")
    assert record.result == b'{"heard":"early","in":"gh"}'
    waiting = await storage.jobs.get(later.id)
    assert waiting is not None
    assert waiting.status is JobStatus.SCHEDULED
    (queue,) = await storage.queues.all()
    assert (queue.name, queue.slots) == ("gh", 2)
    assert (await reap_stale_jobs(storage)).pending == 0
    assert (await cleanup_once(storage)).jobs == 0
    await storage.close()


async def test_a_runtime_without_queues() -> None:
    runtime = QueueRuntime(open_storage("memory://"), HandlerRegistry())
    with pytest.raises(NoQueues, match="with_queues"):
        await runtime.start()


def test_storage_by_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage().capabilities.name == "sqlite"
    monkeypatch.setenv("FORGE_URL", "memory://")
    assert open_storage().capabilities.name == "memory"
    with pytest.raises(BadUrl):
        open_storage("nonsense://x")
