"""Forge as users hold it: addresses, enqueueing by kind, queues, dead letters, life and end."""

import asyncio
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from forge_jobs import (
    BadArguments,
    BadConfig,
    BadName,
    BadOption,
    BadPayload,
    BadUrl,
    Context,
    Dead,
    DeadJob,
    Forge,
    JobStatus,
    NotYet,
    PayloadTooLarge,
    Refused,
    Retry,
)
from forge_jobs.app.worker import run_worker
from forge_jobs.engine.requests import published_kinds_cache


async def stored(forge: Forge) -> int:
    store = await forge.aready()
    return sum(count.jobs for count in await store.metrics.counts())


# ---------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("url", "error", "parts"),
    [
        ("mysql://user:sesame@host/db", BadUrl, ["'mysql'", "use sqlite:///"]),
        ("forge.db", BadUrl, ["no scheme"]),
        ("sqlite://host:sesame@x/forge.db", BadUrl, ["three slashes"]),
        ("sqlite:///x.db?speed=fast", BadUrl, ["'speed'"]),
        ("postgresql://user:sesame@host/db?schema=No", BadUrl, ["schema='No'"]),
        ("redis://:sesame@host/0", NotYet, ["Redis"]),
    ],
)
def test_a_bad_address_is_refused_at_once_and_keeps_its_secret(
    url: str, error: type[Exception], parts: list[str]
) -> None:
    with pytest.raises(error) as caught:
        Forge(url)
    for part in parts:
        assert part in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_the_address_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORGE_URL", "memory://")
    with Forge() as forge:
        assert forge.url == "memory://"
        assert forge.ready().capabilities.name == "memory"
    monkeypatch.setenv("FORGE_URL", "mysql://host/db")
    broken = Forge()
    with pytest.raises(BadUrl, match="'mysql'"):
        broken.ready()
    monkeypatch.setenv("FORGE_URL", "memory://")
    assert broken.url == "mysql://host/db", "an address is settled by its first use"


def test_a_broken_forge_toml_does_not_matter_to_an_explicit_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "forge.toml").write_text("url = ")
    monkeypatch.chdir(tmp_path)
    with Forge("memory://") as forge:
        assert forge.enqueue("anything").id
    with pytest.raises(BadConfig, match="not valid TOML"):
        Forge().ready()


def test_a_forge_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_URL", "postgresql://ada:sesame@host/db")
    forge = Forge()
    assert forge.url.endswith("sesame@host/db")
    assert repr(forge) == "<Forge postgresql://ada:***@host/db>"


def test_named_memory_is_shared() -> None:
    with Forge("memory://shared-by-two") as one, Forge("memory://shared-by-two") as two:
        job = one.enqueue("thing", {"a": 1})
        assert two.job(job.id).refresh().payload == {"a": 1}


# ----------------------------------------------------------------------------------- by kind


def test_by_kind_with_the_task_at_hand(forge: Forge) -> None:
    @forge.task(queue="mail", max_attempts=3, tags=["t"])
    def send(to: str, subject: str = "none") -> None: ...

    job = forge.enqueue("send", {"to": "a@b.c"}).refresh()
    assert (job.queue, job.max_attempts, job.tags) == ("mail", 3, ("t",))
    assert job.payload == {"to": "a@b.c"}
    assert forge.enqueue("send", {"to": "x"}, queue="slow", priority=4).refresh().queue == "slow"
    for bad in ({}, {"to": 1}, {"to": "a", "cc": "b"}, [1], "text"):
        with pytest.raises(BadArguments, match="task 'send'"):
            forge.enqueue("send", bad)


async def test_by_kind_without_the_code(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await forge.aready()
    job = await forge.aenqueue("send", {"to": "a"})
    assert (await job.arefresh()).queue == "default"
    await store.queues.publish({"send": "mail"})
    monkeypatch.setattr(published_kinds_cache, "FRESH_S", 0.0)
    job = await forge.aenqueue("send", {"to": "a"}, priority=-3, tags=["x"])
    await job.arefresh()
    assert (job.queue, job.priority, job.tags) == ("mail", -3, ("x",))
    job = await asyncio.to_thread(forge.enqueue, "send", None, delay="1h")
    await job.arefresh()
    assert (job.queue, job.status, job.payload) == ("mail", JobStatus.SCHEDULED, {})
    assert (await (await forge.aenqueue("send", {}, queue="q")).arefresh()).queue == "q"
    assert (await (await forge.aenqueue("other", [1, "two"])).arefresh()).payload == [1, "two"]


async def test_published_kinds_are_remembered_for_a_while(
    forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await forge.aready()
    asked: list[int] = []
    real = store.queues.kinds

    async def counted() -> dict[str, str]:
        asked.append(1)
        return await real()

    monkeypatch.setattr(store.queues, "kinds", counted)
    for n in range(20):
        await forge.aenqueue(f"kind{n}", {})
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("kind", "payload", "error", "message"),
    [
        ("no spaces", {}, BadName, "kind 'no spaces' is not allowed"),
        ("", {}, BadName, "kind ''"),
        (None, {}, BadName, "kind None"),
        ("k", {"x": object()}, BadPayload, "forge.enqueue('k'): the payload cannot be stored"),
        ("k", {"x": float("nan")}, BadPayload, "NaN"),
        ("k", {"x": "y" * (1 << 20)}, PayloadTooLarge, "the limit is 1,048,576"),
    ],
)
async def test_bad_requests_by_kind_store_nothing(
    forge: Forge, kind: Any, payload: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        await forge.aenqueue(kind, payload)
    assert message in str(caught.value)
    assert "object at" not in str(caught.value)
    assert await stored(forge) == 0


async def test_a_lower_level_handler_runs_by_kind(forge: Forge) -> None:
    class Echo:
        kind = "echo"

        async def run(self, ctx: Context, payload: Any) -> Any:
            return [ctx.job.kind, payload]

    forge.registry.register(Echo())
    job = await forge.aenqueue("echo", {"a": 1})
    await forge.drain()
    assert await job.aresult(timeout=60) == ["echo", {"a": 1}]


# --------------------------------------------------------------------------- jobs from jobs


async def test_what_a_job_enqueues(forge: Forge) -> None:
    seen: list[str] = []

    @forge.task(queue="b")
    def note(text: str) -> None:
        seen.append(text)

    @forge.task(queue="a")
    async def start(ctx: Context) -> None:
        ctx.on_done(note, "when done")
        await ctx.aenqueue(note, "by task")
        await ctx.aenqueue("note", {"text": "by kind"})
        ctx.enqueue(note.using(priority=5), text="with options")
        await note.aenqueue("directly")

    @forge.task(queue="a", max_attempts=1)
    async def fails(ctx: Context) -> None:
        ctx.on_done(note, "never")
        raise OSError

    await start.aenqueue()
    await fails.aenqueue()
    report = await forge.drain()
    assert sorted(seen) == ["by kind", "by task", "directly", "when done", "with options"]
    assert (report.ran, report.done, report.dead) == (7, 6, 1)


async def test_a_dead_job_is_handed_to_its_on_dead_task(forge: Forge) -> None:
    dead_jobs: list[DeadJob] = []

    @forge.task(queue="alerts")
    async def alert(job: DeadJob) -> None:
        dead_jobs.append(job)

    @forge.task(queue="mail", on_dead=alert)
    async def send(to: str) -> None:
        raise Dead("no such address")

    @forge.task(on_dead=alert, max_attempts=1)
    def breaks(n: int) -> None:
        raise OSError("boom")

    job, other = await send.aenqueue("a@b.c"), await breaks.aenqueue(7)
    await forge.drain()
    first, second = sorted(dead_jobs, key=lambda dead: dead.kind, reverse=True)
    assert (first.id, first.kind, first.queue) == (job.id, "send", "mail")
    assert (first.payload, first.attempts) == ({"to": "a@b.c"}, 1)
    assert "no such address" in (first.error or "")
    assert (second.id, second.payload) == (other.id, {"n": 7})


async def test_the_tasks_own_retry_rule(forge: Forge) -> None:
    @forge.task(retry=Retry(delays=[0], only=(OSError,)))
    async def picky(ctx: Context) -> int:
        if ctx.job.attempts == 1:
            raise OSError("again")
        raise ValueError("never again")

    job = await picky.aenqueue()
    await forge.drain()
    await job.arefresh()
    assert (job.status, job.attempts) == (JobStatus.DEAD, 2)


# ------------------------------------------------------------------------- queues, not yet


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"slots": -1}, BadConfig, "forge.queue('mail') has slots -1"),
        ({"slots": "many"}, BadConfig, "slots 'many'"),
        ({"concurrency": 0}, BadOption, "concurrency=0 must be a whole number from 1"),
        ({"rate": "fast"}, BadOption, "rate='fast' is not a rate"),
        ({"slot": 5}, BadOption, "unknown option 'slot'; did you mean 'slots'?"),
    ],
)
def test_bad_queue_declarations(
    forge: Forge, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        forge.queue("mail", **options)
    assert message in str(caught.value)
    with pytest.raises(BadName):
        forge.queue("a b")


# ------------------------------------------------------------------------------ life and end


async def test_a_forge_with_a_running_worker_is_not_closed(forge: Forge) -> None:
    async with forge.worker(queues=["mail"]):
        for close in (forge.aclose, lambda: asyncio.to_thread(forge.close)):
            with pytest.raises(Refused, match="a worker of this Forge is running"):
                await close()
    await forge.aclose()
    await forge.aclose()


async def test_a_store_opened_by_hand_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    async with Forge("memory://") as forge:
        store = forge.store

        async def close() -> None:
            closed.append("store")

        monkeypatch.setattr(store, "close", close)
        await store.open()
    assert closed == ["store"]


# ---------------------------------------------------------------------------------- drain


def test_u15e_drain_has_a_way_for_synchronous_code(forge: Forge) -> None:
    @forge.task
    def double(n: int) -> int:
        return 2 * n

    jobs = double.enqueue_many([(1,), (2,)])
    assert forge.drain(limit=1).run().ran == 1
    assert forge.drain(["default"]).run().done == 1
    assert [job.result(timeout=10) for job in jobs] == [2, 4]
    assert forge.drain().run().ran == 0


def test_an_error_in_a_synchronous_drain_is_that_of_the_handler_alone(forge: Forge) -> None:
    @forge.task
    async def fail() -> None:
        raise ConnectionError("no answer")

    job = fail.enqueue()
    assert forge.drain().run().failed == 1
    assert job.refresh().error == "ConnectionError: no answer"
    assert "event loop" not in (job.traceback or "")


def test_an_error_of_a_sync_run_has_no_cause_of_ours() -> None:
    class Failing:
        async def serve(self) -> None:
            raise ConnectionError("smtp is away")

    async def close() -> None: ...

    with pytest.raises(ConnectionError) as caught:
        run_worker(cast("Any", Failing()), close)
    assert caught.value.__context__ is None


async def test_u15e_drain_has_an_async_twin_and_may_still_be_awaited(forge: Forge) -> None:
    @forge.task
    async def nothing() -> None: ...

    for _ in range(4):
        await nothing.aenqueue()
    assert (await forge.adrain(limit=1)).done == 1
    assert (await forge.drain(limit=1)).done == 1
    assert (await asyncio.create_task(forge.drain(limit=1))).done == 1
    assert (await asyncio.to_thread(asyncio.run, forge.drain())).done == 1
    with pytest.raises(Refused, match=r"await forge\.adrain"):
        forge.drain().run()


async def test_u15e_a_cancelled_drain_ends(forge: Forge) -> None:
    started = asyncio.Event()

    @forge.task
    async def hang() -> None:
        started.set()
        await asyncio.sleep(3_600)

    await hang.aenqueue()
    draining = asyncio.create_task(forge.drain())
    await started.wait()
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining


def test_u15e_a_forgotten_drain_is_reported(forge: Forge) -> None:
    with pytest.warns(RuntimeWarning, match="was never awaited"):
        forge.drain()


# ---------------------------------------------------------------------------------- addresses


def test_the_dsn_is_an_address_that_drivers_take(schemas: Any) -> None:
    schema = schemas.take()
    forge = Forge(f"{schemas.url(schema)}&pooler=off")
    assert "schema=" in forge.url
    with psycopg.connect(forge.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    schemas.give_back(schema)
    with pytest.raises(BadOption, match="for Postgres"):
        Forge("memory://").dsn  # noqa: B018
