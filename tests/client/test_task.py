"""Tasks as callers use them: enqueue, options, many at once, plain calls."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from forge_jobs import (
    BadArguments,
    BadDuration,
    BadName,
    BadOption,
    BadTime,
    Context,
    Forge,
    JobStatus,
    PayloadTooLarge,
    Retry,
)
from forge_jobs.core.job import NewJob, UniqueWhile

MORNING = datetime(2031, 5, 6, 9, 0, tzinfo=UTC)


def stored(forge: Forge) -> int:
    counts = forge.ready()
    return sum(count.jobs for count in asyncio.run(counts.metrics.counts()))


def test_with_and_without_parentheses(forge: Forge) -> None:
    @forge.task
    def bare() -> int:
        """What it does."""
        return 1

    @forge.task()
    def empty() -> int:
        return 2

    @forge.task(kind="other.name", queue="mail")
    async def named() -> int:
        return 3

    assert (bare.kind, bare.queue, bare()) == ("bare", "default", 1)
    assert (empty.kind, empty()) == ("empty", 2)
    assert (named.kind, named.queue, asyncio.run(named())) == ("other.name", "mail", 3)
    assert bare.__name__ == "bare"
    assert bare.__doc__ == "What it does."
    assert list(forge.tasks) == ["bare", "empty", "other.name"]


def test_enqueue_from_sync_code(forge: Forge) -> None:
    @forge.task(queue="mail", max_attempts=3, priority=7, tags=["a", "b"], timeout="30s")
    def send(to: str, subject: str) -> int: ...  # type: ignore[empty-body]

    job = send.enqueue("a@b.c", subject="hi")
    assert len(job.id) == 26
    assert job.duplicate is False
    assert job.status is JobStatus.PENDING
    seen = job.refresh()
    assert seen is job
    assert job.payload == {"to": "a@b.c", "subject": "hi"}
    assert (job.kind, job.queue, job.max_attempts, job.priority) == ("send", "mail", 3, 7)
    assert (job.attempts, job.tags, job.record.timeout_s) == (0, ("a", "b"), 30.0)
    assert job.enqueued_at.tzinfo is not None


async def test_enqueue_from_a_coroutine(forge: Forge) -> None:
    @forge.task
    async def send(to: str) -> None: ...

    job = await send.aenqueue("a@b.c")
    assert (await job.arefresh()).payload == {"to": "a@b.c"}
    jobs = await send.aenqueue_many([("x",), {"to": "y"}])
    assert [(await job.arefresh()).payload["to"] for job in jobs] == ["x", "y"]


async def test_sync_calls_inside_a_running_loop(forge: Forge) -> None:
    @forge.task
    async def send(to: str) -> None: ...

    job = send.enqueue("a@b.c")
    assert job.refresh().status is JobStatus.PENDING
    assert job.cancel() is True
    assert job.refresh().status is JobStatus.CANCELLED
    assert len(send.enqueue_many([("a",), ("b",)])) == 2


def test_many_keep_their_order(forge: Forge) -> None:
    @forge.task
    def number(n: int) -> None: ...

    jobs = number.enqueue_many([(n,) for n in range(50)])
    assert [job.refresh().payload["n"] for job in jobs] == list(range(50))
    assert number.enqueue_many([]) == []


def test_many_are_stored_all_or_none(forge: Forge) -> None:
    @forge.task
    def number(n: int) -> None: ...

    for bad in [(("x",)), "5", 5, {"m": 1}, None]:
        with pytest.raises(BadArguments, match="call number 2"):
            number.enqueue_many([(1,), (2,), bad, (4,)])  # type: ignore[list-item]
    assert stored(forge) == 0


def test_bench_form_of_many(forge: Forge) -> None:
    @forge.task
    def noop() -> None: ...

    assert len(noop.enqueue_many([()] * 100)) == 100


def bound(forge: Forge, **options: Any) -> NewJob:
    @forge.task(kind=f"k{len(forge.tasks)}", max_attempts=9)
    def job() -> None: ...

    return job.using(**options).bind()


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"delay": "10m"}, "delay_s", 600.0),
        ({"delay": 1.5}, "delay_s", 1.5),
        ({"delay": timedelta(minutes=1)}, "delay_s", 60.0),
        ({"run_at": MORNING}, "run_at", int(MORNING.timestamp()) * 1_000_000),
        ({"at": MORNING.astimezone(timezone(timedelta(hours=5)))}, "run_at",
         int(MORNING.timestamp()) * 1_000_000),
        ({"priority": -5}, "priority", -5),
        ({"queue": "mail"}, "queue", "mail"),
        ({"max_attempts": 3}, "max_attempts", 3),
        ({"timeout": "2s"}, "timeout_s", 2.0),
        ({"timeout": None}, "timeout_s", None),
        ({"expires": "1h"}, "expires_s", 3600.0),
        ({"expires": MORNING}, "expires_at", int(MORNING.timestamp()) * 1_000_000),
        ({"dedupe_key": "welcome:42"}, "dedupe_key", "welcome:42"),
        ({"dedupe_key": "w", "dedupe_for": "48h"}, "dedupe_for_s", 172_800.0),
        ({"dedupe_key": "w", "unique_while": "waiting"}, "unique_while", UniqueWhile.WAITING),
        ({"tags": ["vip", "vip", "eu"]}, "tags", ("vip", "eu")),
        ({}, "max_attempts", 9),
    ],
)  # fmt: skip
def test_options_reach_the_job(
    forge: Forge, options: dict[str, Any], field: str, value: Any
) -> None:
    assert getattr(bound(forge, **options), field) == value


def test_options_add_up_and_leave_the_task_alone(forge: Forge) -> None:
    @forge.task
    def job() -> None: ...

    later = job.using(delay="10m", priority=1)
    both = later.using(priority=2, tags=["x"])
    assert (both.bind().delay_s, both.bind().priority, both.bind().tags) == (600.0, 2, ("x",))
    assert later.bind().priority == 1
    assert job.bind().delay_s == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"dely": 1}, BadOption, "unknown option 'dely'; did you mean 'delay'? Known options: "),
        ({"zzz": 1}, BadOption, "Known options: delay, run_at, at, priority, queue"),
        ({"delay": -1}, BadDuration, "delay=-1 is not a duration"),
        ({"delay": "soon"}, BadDuration, "delay='soon'"),
        ({"delay": True}, BadDuration, "delay=True"),
        ({"delay": "1s", "run_at": MORNING}, BadOption, "only one of delay=, run_at= and at="),
        (
            {"run_at": datetime(2031, 1, 1)},
            BadTime,
            "run_at='2031-01-01T00:00:00' has no time zone",
        ),
        ({"at": datetime(2031, 1, 1)}, BadTime, "at='2031-01-01T00:00:00' has no time zone"),
        ({"run_at": 30}, BadOption, "run_at=30 must be an aware datetime; for a span of time use"),
        ({"run_at": "tomorrow"}, BadOption, "run_at='tomorrow' must be an aware datetime"),
        ({"expires": datetime(2031, 1, 1)}, BadTime, "expires="),
        ({"expires": -1}, BadDuration, "expires=-1"),
        ({"queue": "a b"}, BadName, "queue 'a b' is not allowed: use 1 to 63 letters"),
        ({"queue": ""}, BadName, "queue ''"),
        ({"queue": None}, BadName, "queue None"),
        ({"priority": "high"}, BadOption, "priority='high' must be a whole number"),
        ({"priority": 10**12}, BadOption, "priority=1000000000000"),
        ({"max_attempts": 0}, BadOption, "max_attempts=0 must be a whole number from 1"),
        ({"max_attempts": True}, BadOption, "max_attempts=True"),
        ({"timeout": 0}, BadOption, "timeout=0 must be longer than zero"),
        ({"dedupe_key": ""}, BadName, "dedupe_key ''"),
        ({"dedupe_key": "x" * 513}, BadName, "1 to 512 characters"),
        ({"dedupe_key": 42}, BadName, "dedupe_key 42"),
        ({"dedupe_for": "1h"}, BadOption, "dedupe_for= needs dedupe_key="),
        ({"unique_while": "waiting"}, BadOption, "unique_while= needs dedupe_key="),
        ({"dedupe_key": "a", "unique_while": "x"}, BadOption, "use one of 'live', 'waiting'"),
        ({"tags": "vip"}, BadOption, "tags='vip' must be a list of texts"),
        ({"tags": 5}, BadOption, "tags=5"),
        ({"tags": ["a,b"]}, BadName, "must not contain a comma"),
        ({"tx": None}, BadOption, "tx=None is no connection"),
        ({"tx": object()}, BadOption, "tx="),
        ({"lane": ""}, BadName, "lane ''"),
        ({"order": "serial"}, BadOption, "order='serial' needs lane="),
        ({"order": "sideways"}, BadOption, "use one of 'none', 'serial', 'strict'"),
    ],
)
def test_bad_options_name_the_field_and_store_nothing(
    forge: Forge, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    @forge.task
    def job() -> None: ...

    for call in (
        lambda: job.using(**options).enqueue(),
        lambda: job.using(**options).enqueue_many([()]),
        lambda: forge.enqueue("job", {}, **options),
        lambda: forge.enqueue("elsewhere", {}, **options),
        lambda: asyncio.run(_aenqueue(job.using, options)),
    ):
        with pytest.raises(error) as caught:
            call()
        assert message in str(caught.value)
    assert stored(forge) == 0


async def _aenqueue(using: Any, options: dict[str, Any]) -> None:
    await using(**options).aenqueue()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"queu": "x"}, BadOption, "unknown option 'queu'; did you mean 'queue'?"),
        ({"kind": "9lives"}, BadName, "kind '9lives' is not allowed"),
        ({"kind": ""}, BadName, "kind ''"),
        ({"kind": 5}, BadName, "kind 5"),
        ({"queue": "a/b"}, BadName, "queue 'a/b'"),
        ({"max_attempts": 0}, BadOption, "max_attempts=0"),
        ({"timeout": -1}, BadDuration, "timeout=-1"),
        ({"retry": "15s"}, BadOption, "retry='15s' must be a Retry"),
        ({"scopes": "smtp"}, BadOption, "scopes='smtp' must be a list"),
        ({"cpu": "yes"}, BadOption, "cpu='yes' must be True or False"),
        ({"payload_limit": 0}, BadOption, "payload_limit=0"),
        ({"on_dead": print}, BadOption, "must be a task of the same Forge"),
        ({"concurrency": 0}, BadOption, "concurrency=0 must be a whole number from 1"),
        ({"per": "args.host"}, BadOption, "per= needs concurrency="),
        ({"concurrency": 5, "per": "host"}, BadOption, "must name an argument"),
        ({"concurrency": 5, "per": "args.host"}, BadOption, "names no argument of it"),
        ({"rate": "50"}, BadOption, "rate='50' is not a rate"),
        ({"order": "strict"}, BadOption, "order='strict' needs lane="),
    ],
)
def test_bad_task_options(
    forge: Forge, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:

        @forge.task(**options)
        def job() -> None: ...

    assert message in str(caught.value)
    assert forge.tasks == {}
    assert forge.registry.kinds() == {}


def test_task_options_reach_the_handler(forge: Forge) -> None:
    retry = Retry(base="1s", never=(ValueError,))

    @forge.task(queue="mail", retry=retry, timeout="5s", scopes=["smtp", "smtp", "dns"])
    async def send() -> None: ...

    @forge.task
    def plain() -> None: ...

    handler = forge.handler("send")
    assert handler is not None
    assert (handler.queue, handler.retry, handler.timeout_s) == ("mail", retry, 5.0)
    assert (handler.scopes, handler.run_in) == (("smtp", "dns"), "loop")
    handler = forge.handler("plain")
    assert handler is not None
    assert handler.run_in == "thread"
    assert forge.handler("unheard") is None


def test_payload_limit_of_a_task(forge: Forge) -> None:
    @forge.task(payload_limit=100)
    def small(text: str) -> None: ...

    assert small.enqueue("x" * 80).id
    with pytest.raises(PayloadTooLarge, match="limit is 100"):
        small.enqueue("x" * 100)
    assert stored(forge) == 1


def test_a_dedupe_key_gives_the_existing_job(forge: Forge) -> None:
    @forge.task
    def welcome(user: int) -> None: ...

    one = welcome.using(dedupe_key="welcome:42")
    first, second = one.enqueue(42), one.enqueue(42)
    assert not first.duplicate
    assert second.duplicate
    assert second == first
    assert {first, second} == {first}


def test_a_plain_call_runs_here_and_stores_nothing(forge: Forge) -> None:
    @forge.task
    def double(n: int) -> int:
        return 2 * n

    @forge.task
    async def triple(n: int) -> int:
        return 3 * n

    assert double(21) == 42
    assert asyncio.run(triple(2)) == 6
    assert stored(forge) == 0


def test_a_plain_call_makes_a_context_of_its_own(forge: Forge) -> None:
    @forge.task(queue="mail", tags=["t"])
    def send(to: str, ctx: Context) -> str:
        ctx.progress(0.5, "half")
        ctx.log.info("sending")
        assert not ctx.cancelled
        ctx.raise_if_cancelled()
        return f"{ctx.job.kind}/{ctx.job.queue}/{ctx.job.attempts}/{ctx.host_id}/{ctx.job.tags}"

    assert send("a") == "send/mail/1/local/('t',)"  # type: ignore[call-arg]
    assert stored(forge) == 0


def test_what_a_plain_call_puts_off_is_enqueued_when_it_succeeds(forge: Forge) -> None:
    @forge.task
    def archive(to: str) -> None: ...

    @forge.task
    def send(to: str, ctx: Context) -> None:
        ctx.on_done(archive, to)
        if to == "bad":
            raise ValueError("no such place")

    @forge.task
    async def asend(ctx: Context, to: str) -> None:
        ctx.on_done(archive, to)
        await ctx.aenqueue("elsewhere", {"a": 1})

    with pytest.raises(ValueError, match="no such place"):
        send("bad")
    assert stored(forge) == 0
    send("good")
    assert stored(forge) == 1
    asyncio.run(asend("a"))
    assert stored(forge) == 3


def test_a_context_given_to_a_plain_call_is_used(forge: Forge) -> None:
    seen: list[Context] = []

    @forge.task
    def outer(ctx: Context) -> None:
        inner(ctx)  # type: ignore[call-arg]
        assert seen == [ctx]

    @forge.task
    def inner(ctx: Context) -> None:
        seen.append(ctx)

    outer()
