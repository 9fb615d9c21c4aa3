"""Limits, lanes and scopes as users declare them: every backend, workers in this process."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from forge_jobs import (
    Context,
    DefaultRouter,
    EnqueueRequest,
    Forge,
    HandlerRegistry,
    JobRecord,
    JobStatus,
    QueueRuntime,
    Retry,
    Throttled,
)
from forge_jobs.core.limits import Declared
from forge_jobs.core.selection import Filter
from forge_jobs.ops import declared_limits
from forge_jobs.ops.declared_limits import LimitActions
from forge_jobs.store.limits import LimitChange
from forge_jobs.store.store import Store

DEADLINE_S = 60.0


class Crowd:
    """Counts who is inside, by name."""

    def __init__(self) -> None:
        self.inside: dict[str, int] = defaultdict(int)
        self.most: dict[str, int] = defaultdict(int)
        self.order: list[Any] = []

    async def visit(self, name: str, seconds: float = 0.02) -> None:
        self.inside[name] += 1
        self.most[name] = max(self.most[name], self.inside[name])
        self.order.append(name)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.inside[name] -= 1


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await asyncio.sleep(0.01)


async def test_no_more_of_a_task_or_queue_at_once(forge: Forge) -> None:
    crowd = Crowd()
    forge.queue("narrow", concurrency=3)

    @forge.task(queue="wide", concurrency=2)
    async def two() -> None:
        await crowd.visit("two")

    @forge.task(queue="wide")
    async def free() -> None:
        await crowd.visit("free")

    @forge.task(queue="narrow")
    async def narrow() -> None:
        await crowd.visit("narrow")

    for task in (two, free, narrow):
        await task.aenqueue_many([()] * 12)
    async with forge.worker(queues=["wide:10", "narrow:10"]):
        await until(lambda: len(crowd.order) == 36)
    assert crowd.most == {"two": 2, "free": crowd.most["free"], "narrow": 3}
    assert crowd.most["free"] > 2


async def test_each_key_has_its_own_limit(forge: Forge) -> None:
    crowd = Crowd()

    @forge.task(queue="q", concurrency=1, per="args.host")
    async def fetch(host: str) -> None:
        await crowd.visit(host)

    jobs = await fetch.aenqueue_many([("a",)] * 6 + [("b",)] * 3)
    states = [(await job.arefresh()).status for job in jobs]
    assert states.count(JobStatus.PENDING) == 2
    async with forge.worker(queues=["q:10"]):
        await until(lambda: len(crowd.order) == 9)
    assert crowd.most == {"a": 1, "b": 1}
    # b did not wait for all of a.
    assert "b" in crowd.order[:4]


async def test_a_producer_without_the_code_keeps_to_the_key(shared_url: str) -> None:
    worker, producer = Forge(shared_url), Forge(shared_url)

    @worker.task(queue="q", concurrency=1, per="args.host")
    async def fetch(host: str) -> None: ...

    await worker.aready()
    store = await producer.aready()
    await store.queues.publish({"fetch": "q"})
    jobs = [await producer.aenqueue("fetch", {"host": "a"}) for _ in range(2)]
    records = [await store.jobs.get(job.id) for job in jobs]
    assert [record.limit_key for record in records if record] == ["task:fetch/a"] * 2
    assert [record.status for record in records if record] == [JobStatus.PENDING, JobStatus.HELD]
    await worker.aclose()
    await producer.aclose()


async def test_every_way_in_keeps_to_the_key(shared_url: str) -> None:
    """Of a task that another program has: by kind from a handler, by schedules, by a runtime."""
    owner, other = Forge(shared_url), Forge(shared_url)

    @owner.task(queue="q", concurrency=1, per="args.host")
    async def fetch(host: str) -> None: ...

    @other.task(queue="mine")
    async def start(ctx: Context) -> None:
        await ctx.aenqueue("fetch", {"host": "a"})
        ctx.on_done("fetch", host="a")

    store = await owner.aready()
    await store.queues.publish({"fetch": "q"})
    await (await other.aready()).queues.ensure("mine", slots=2)
    await other.schedules.acreate("pull", "0 0 1 1 *", "fetch", payload={"host": "a"})
    await other.schedules.aedit("pull", payload={"host": "b"})
    await other.schedules.atrigger("pull")
    await other.schedules.acreate("soon", "* * * * * *", "fetch", payload={"host": "c"})
    runtime = QueueRuntime(store, HandlerRegistry(), DefaultRouter("q"))
    await runtime.enqueue(EnqueueRequest(kind="fetch", payload={"host": "d"}))
    async with other.worker(queues=["mine"]):
        await start.aenqueue()
        async with asyncio.timeout(DEADLINE_S):
            while len(found := await _fetches(store)) < 5:
                await asyncio.sleep(0.05)
    assert {(job.queue, job.limit_key) for job in found} == {
        ("q", f"task:fetch/{host}") for host in "abcd"
    }
    of_a = [job.status for job in found if job.limit_key == "task:fetch/a"]
    assert sorted(of_a) == [JobStatus.HELD, JobStatus.PENDING]
    await owner.aclose()
    await other.aclose()


async def _fetches(store: Store) -> list[JobRecord]:
    page = await store.jobs.page(Filter(kind="fetch"), limit=100)
    return list({(job.payload, job.status): job for job in page.jobs}.values())


async def test_a_handlers_job_by_kind_is_a_job_of_its_task(forge: Forge) -> None:
    @forge.task(queue="q", priority=4, max_attempts=2, lane="one", tags=["own"])
    async def step(number: int) -> None: ...

    @forge.task()
    async def start(ctx: Context) -> None:
        await ctx.aenqueue("step", {"number": 1})

    await start.aenqueue()
    await forge.drain(queues=["default"])
    [job] = (await (await forge.aready()).jobs.page(Filter(kind="step"), limit=9)).jobs
    assert (job.queue, job.priority, job.max_attempts) == ("q", 4, 2)
    assert (job.lane, job.tags) == ("one", ("own",))


async def test_a_serial_lane_continues_while_one_waits_for_its_retry(forge: Forge) -> None:
    crowd, failed = Crowd(), set[int]()

    @forge.task(queue="q", retry=Retry(base="1s", jitter=0))
    async def step(number: int) -> None:
        await crowd.visit("lane")
        crowd.order[-1] = number
        if number == 0 and number not in failed:
            failed.add(number)
            raise RuntimeError("once more")

    for number in range(4):
        await step.using(lane="chat:7", order="serial").aenqueue(number)
    async with forge.worker(queues=["q:10"]):
        await until(lambda: len(crowd.order) == 5 and not crowd.inside["lane"])
    assert crowd.most["lane"] == 1
    assert crowd.order[0] == 0
    assert crowd.order[1] == 1
    assert sorted(map(str, crowd.order)) == ["0", "0", "1", "2", "3"]


async def test_a_strict_lane_waits_for_its_head_and_others_continue(forge: Forge) -> None:
    crowd = Crowd()

    @forge.task(queue="q", max_attempts=1_000, retry=Retry(base="50ms", max="50ms", jitter=0))
    async def step(lane: str, number: int) -> None:
        if (lane, number) == ("a", 0) and ("b", 2) not in crowd.order:
            raise RuntimeError("not before all of the other lane")
        crowd.order.append((lane, number))

    for number in range(3):
        for lane in ("a", "b"):
            await step.using(lane=lane, order="strict").aenqueue(lane, number)
    async with forge.worker(queues=["q:10"]):
        await until(lambda: len(crowd.order) == 6)
    assert crowd.order == [(lane, number) for lane in ("b", "a") for number in range(3)]


async def test_a_task_may_name_its_lane(forge: Forge) -> None:
    crowd = Crowd()

    @forge.task(queue="q", lane="one")
    async def step() -> None:
        await crowd.visit("one")

    await step.aenqueue_many([()] * 4)
    async with forge.worker(queues=["q:10"]):
        await until(lambda: len(crowd.order) == 4 and not crowd.inside["one"])
    assert crowd.most["one"] == 1


async def test_one_429_closes_the_scope_for_every_process(forge: Forge) -> None:
    """Two workers, as two processes see each other; the real ones are in test_processes."""
    told: list[str] = []

    @forge.task(queue="mail", scopes=["smtp"], max_attempts=1)
    async def send(number: int, ctx: Context) -> None:
        told.append(f"send {ctx.job.attempts}")
        raise Throttled(retry_after=60, scope="smtp")

    @forge.task(queue="mail")
    async def other() -> None:
        told.append("other")

    async with (
        forge.worker(queues=["mail:1"], worker_id="a"),
        forge.worker(queues=["mail:1"], worker_id="b"),
    ):
        first = await send.aenqueue(0)
        await until(lambda: told)
        store = await forge.aready()
        async with asyncio.timeout(DEADLINE_S):
            while "smtp" not in await store.limits.gates():
                await asyncio.sleep(0.01)
        later = [await send.aenqueue(number) for number in range(1, 5)]
        await other.aenqueue_many([()] * 3)
        await until(lambda: told.count("other") == 3)
        assert told.count("send 1") == 1
        assert (await first.arefresh()).attempts == 0
        assert {(await job.arefresh()).status for job in later} == {JobStatus.PENDING}
        [scope] = await declared_limits.scopes(store)
        assert (scope.scope, scope.tasks, scope.closed_until is not None) == (
            "smtp", ("send",), True,
        )  # fmt: skip
        await LimitActions(store, actor="me").open_scope("smtp")
        await until(lambda: told.count("send 1") >= 2)


async def test_an_undeclared_scope_closes_the_queue(forge: Forge) -> None:
    @forge.task(queue="mail")
    async def send() -> None:
        raise Throttled(retry_after=60, scope="somewhere")

    await send.aenqueue()
    async with forge.worker(queues=["mail"]):
        store = await forge.aready()
        async with asyncio.timeout(DEADLINE_S):
            while True:
                config = await store.queues.get("mail")
                if config is not None and config.gate.until is not None:
                    break
                await asyncio.sleep(0.01)
    assert await store.limits.gates() == {}


async def test_an_operators_limit_survives_a_worker_that_starts(forge: Forge) -> None:
    @forge.task(queue="q", concurrency=5, rate="50/m")
    async def work() -> None: ...

    async with forge.worker(queues=["q"]):
        pass
    store = await forge.aready()
    await store.limits.change("task:work", LimitChange(concurrency=2))
    async with forge.worker(queues=["q"]):
        pass
    [limit] = await store.limits.all()
    assert (limit.concurrency, limit.by_operator) == (2, True)


async def test_the_limit_of_a_task_that_no_longer_declares_one_is_removed(forge: Forge) -> None:
    store = await forge.aready()
    await store.limits.publish([Declared(name="task:work", concurrency=5)])

    @forge.task(queue="q")
    async def work() -> None: ...

    async with forge.worker(queues=["q"]):
        pass
    [limit] = await store.limits.all()
    assert limit.concurrency is None


@pytest.mark.parametrize("order", ["serial", "strict"])
async def test_draining_runs_lanes_and_keys_too(forge: Forge, order: str) -> None:
    seen: list[int] = []

    @forge.task(queue="q", concurrency=1, per="args.host")
    async def fetch(host: str, number: int) -> None:
        seen.append(number)

    for number in range(4):
        await fetch.using(lane="x", order=order).aenqueue("a", number)  # type: ignore[typeddict-item]
    await forge.drain()
    assert seen == [0, 1, 2, 3]
