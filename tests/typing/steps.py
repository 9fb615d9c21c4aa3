"""Steps, waits and events as a type checker sees them; checked by test_typing.py, never run.

A line with a "wrong" remark at its end must be refused with that text; every other must pass.
"""

from typing import assert_type

import msgspec

from forge_jobs import Context, Forge, ReceivedEvent, SentEvent

forge = Forge()


@forge.task
async def plain_task(n: int) -> list[int]:
    return [n]


class Payment(msgspec.Struct):
    amount: int


def reserve(sku: str, count: int = 1) -> Payment:
    return Payment(count)


async def charge(cents: int) -> str:
    return str(cents)


async def steps_are_typed_by_their_function(ctx: Context) -> None:
    assert_type(await ctx.step("charge", charge, 12), str)
    assert_type(await ctx.step(charge, cents=12), str)
    assert_type(await ctx.step("reserve", reserve, "a", count=2), Payment)
    assert_type(await ctx.step.using(key=7, timeout="5s")(reserve, "a"), Payment)
    assert_type(ctx.step_sync("reserve", reserve, "a"), Payment)
    assert_type(await ctx.step("task", plain_task, 3), list[int])
    await ctx.step("charge", charge, "twelve")  # wrong: No overloads for "__call__"
    await ctx.step(reserve, "a", cont=2)  # wrong: No overloads for "__call__"
    ctx.step.using(on_change="stop")  # wrong: cannot be assigned to parameter "on_change"
    await ctx.step("charge")  # wrong: No overloads for "__call__"
    ctx.step_sync(reserve, 5)  # wrong: No overloads for "__call__"
    ctx.step.using(keys=1)  # wrong: No parameter named "keys"


async def waits_are_typed(ctx: Context) -> None:
    assert_type(await ctx.sleep("2h"), None)
    assert_type(await ctx.wait_for("paid", key=7, type=Payment), Payment)
    assert_type(await ctx.wait_for("paid", type=Payment, default=None), Payment | None)
    assert_type(await ctx.wait_for(["a", "b"], type=Payment), ReceivedEvent[Payment])
    assert_type((await ctx.wait_for(["a", "b"])).name, str)
    assert_type(ctx.wait_for_sync("paid", type=int, timeout="1h", default=0), int)
    await ctx.wait_for(["a", 5])  # wrong: No overloads for "wait_for"
    await ctx.wait_for("paid", timout="1h")  # wrong: No overloads for "wait_for"
    assert_type(ctx.steps, int)
    if ctx.steps > 5_000:
        raise ctx.restart(1)


def events() -> None:
    assert_type(forge.send("paid", {"amount": 12}, key=42), SentEvent)
    assert_type(forge.using(dedupe_key="evt_1").send("paid"), SentEvent)
    forge.using(priority=1)  # wrong: No parameter named "priority"
    job = plain_task.enqueue(1)
    assert_type(job.send("approve", {"by": "ada"}).duplicate, bool)
    assert_type(job.steps()[0].name, str)
