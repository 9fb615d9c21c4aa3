"""Bad input to steps, sleeps, waits and events: each error names the field and the remedy, and what
was stored before it stays."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from forge_jobs import Context, Forge, ForgeError, JobStatus, Retry, testing
from tests.app.steps.runs import run_all

BadCall = Callable[[Context], Any]

BAD_CALLS: list[tuple[str, BadCall, tuple[str, ...]]] = [
    ("empty name", lambda ctx: ctx.step("", abs, 1), ("step", "1 to 200 printable")),
    ("long name", lambda ctx: ctx.step("n" * 201, abs, 1), ("step", "1 to 200 printable")),
    ("number sign", lambda ctx: ctx.step("a#2", abs, 1), ("step", "'a#2'", "without '#'")),
    ("line end", lambda ctx: ctx.step("a\n", abs, 1), ("step", "printable")),
    ("name of a sleep", lambda ctx: ctx.sleep("1h", name="a#2"), ("step", "without '#'")),
    ("no function", lambda ctx: ctx.step("a"), ("has no function", "ctx.step('a', function")),
    ("no callable", lambda ctx: ctx.step("a", 1), ("step 'a' needs a function",)),
    ("no name", lambda ctx: ctx.step(lambda: 1), ("has no name", "ctx.step('a name', function")),
    ("empty key", lambda ctx: ctx.step.using(key="")("a", abs, 1), ("step key", "1 to 512")),
    ("long key", lambda ctx: ctx.step.using(key="k" * 513)("a", abs, 1), ("step key", "1 to 512")),
    ("control in key", lambda ctx: ctx.step.using(key="\x1f")("a", abs, 1), ("key", "control")),
    ("float key", lambda ctx: ctx.step.using(key=1.5)("a", abs, 1), ("step key", "1.5", "use 1")),
    ("bool key", lambda ctx: ctx.step.using(key=True)("a", abs, 1), ("step key", "True", "use 1")),
    ("unknown option", lambda ctx: ctx.step.using(tries=3), ("using(tries=", "on_change, retry")),
    ("on_change", lambda ctx: ctx.step.using(on_change="stop"), ("on_change='stop'", "'dead'")),
    ("errors", lambda ctx: ctx.step.using(errors=ValueError), ("errors=", "tuple of classes")),
    ("retry", lambda ctx: ctx.step.using(retry=3), ("retry=3", "Retry(")),
    ("errors and tx", lambda ctx: ctx.step.using(errors=(OSError,), tx=1), ("leave errors= out",)),
    ("step timeout", lambda ctx: ctx.step.using(timeout="soon"), ("timeout", "soon")),
    ("value too large", lambda ctx: ctx.step("big", lambda: "x" * 262_143),
     ("step 'big': its value has 262,145 bytes", "262,144", "return a reference")),
    ("value without JSON", lambda ctx: ctx.step("odd", object), ("step 'odd': its value", "JSON")),
    ("value NaN", lambda ctx: ctx.step("nan", lambda: [float("nan")]), ("step 'nan'", "NaN")),
    ("value NUL", lambda ctx: ctx.step("nul", lambda: "\0"), ("step 'nul'", "NUL")),
    ("no span", lambda ctx: ctx.sleep(), ("ctx.sleep needs a duration or until=",)),
    ("bad span", lambda ctx: ctx.sleep("soon"), ("sleep", "soon")),
    ("until without zone", lambda ctx: ctx.sleep(until=datetime(2030, 1, 1)), ("until",)),
    ("event name", lambda ctx: ctx.wait_for("a b"), ("event", "'a b'", "use 1 to 127")),
    ("no events", lambda ctx: ctx.wait_for([]), ("waits for nothing", "name at least one")),
    ("many events", lambda ctx: ctx.wait_for([f"e{n}" for n in range(17)]), ("at most 16",)),
    ("event key", lambda ctx: ctx.wait_for("a", key=1.5), ("event key", "use 1 to 512")),
    ("wait timeout", lambda ctx: ctx.wait_for("a", timeout="soon"), ("timeout", "soon")),
    ("since", lambda ctx: ctx.wait_for("a", since="soon"), ("since", "soon")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "said"), [one[1:] for one in BAD_CALLS], ids=[one[0] for one in BAD_CALLS]
)
async def test_a_bad_call_says_what_to_do_and_loses_nothing(
    call: BadCall, said: tuple[str, ...]
) -> None:
    forge = Forge("memory://")
    calls: list[int] = []
    is_mended = False

    @forge.task(max_attempts=3, retry=Retry(base="1s", jitter=0))
    async def work(ctx: Context) -> str:
        await ctx.step("kept", calls.append, 1)
        if not is_mended:
            made = call(ctx)
            if hasattr(made, "__await__"):
                await made
        return "went on"

    async with forge:
        with testing.frozen(forge) as time:
            job = await work.aenqueue()
            await forge.drain()
            assert (await job.arefresh()).status is JobStatus.FAILED
            for part in said:
                assert part in str(job.error)
            assert list(testing.steps_of(job)) == ["kept"]
            is_mended = True
            time.advance("1h")
            await forge.drain()
        assert await job.aresult(timeout=0) == "went on"
    assert calls == [1]


async def test_bad_events_are_refused_and_none_is_sent(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> Any:
        return await ctx.wait_for("go", key=7)

    job = await work.aenqueue()
    await forge.drain()
    bad: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"name": "a b"}, ("event", "use 1 to 127")),
        ({"name": "go", "key": "k" * 513}, ("event key", "use 1 to 512")),
        ({"name": "go", "key": 7, "payload": object()}, ("JSON",)),
        ({"name": "go", "key": 7, "payload": "x" * 300_000}, ("bytes", "limit")),
        ({"name": "go", "key": 7, "keep": "soon"}, ("keep", "soon")),
    ]
    for options, said in bad:
        name, payload = options.pop("name"), options.pop("payload", None)
        with pytest.raises(ForgeError) as caught:
            await forge.asend(name, payload, **options)
        for part in said:
            assert part in str(caught.value)
    assert (await job.arefresh()).status is JobStatus.SUSPENDED
    await forge.asend("go", 1, key=7)
    job = await run_all(forge, job)
    assert await job.aresult(timeout=0) == 1
