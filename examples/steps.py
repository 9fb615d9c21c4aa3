"""Five workflows made of durable steps. Run: python examples/steps.py"""

import asyncio
from typing import Any

from forge_jobs import Context, Forge, Retry

forge = Forge()


# Human approval: the job is a row while a person decides.


async def draft(topic: str) -> str:
    return f"draft on {topic}"


@forge.task(queue="flows")
async def publish(topic: str, ctx: Context) -> str:
    text = await ctx.step("draft", draft, topic)
    answer = await ctx.wait_for(
        "approve", timeout="3d", type=dict[str, str]
    )  # job.send("approve", …)
    return f"{text}, approved by {answer['by']}"


# Polling an API: the number of looks is in the history, the pause costs nothing.

looks = {"export-1": 0}


async def look(export: str) -> str:
    looks[export] += 1
    return "ready" if looks[export] == 3 else "busy"


@forge.task(queue="flows")
async def poll(export: str, ctx: Context) -> int:
    while await ctx.step("look", look, export) != "ready":  # look, look#2, look#3
        await ctx.sleep("200ms")
    return looks[export]


# A saga by hand: what was done is undone in reverse order. A refusal is a result of its step.


class SoldOut(Exception):
    pass


async def book(what: str) -> str:
    if what == "hotel":
        raise SoldOut(what)
    return f"{what}-7"


async def cancel(booking: str) -> str:
    return f"{booking} cancelled"


@forge.task(queue="flows")
async def travel(parts: list[str], ctx: Context) -> list[str]:
    booked: list[str] = []
    try:
        for part in parts:
            booked.append(await ctx.step.using(key=part, errors=(SoldOut,))("book", book, part))
    except SoldOut:
        return [await ctx.step.using(key=one)("cancel", cancel, one) for one in reversed(booked)]
    return booked


# A nightly pipeline: width by asyncio.gather; a step that failed is the only one to run again.

failures = ["the disk is full"]


async def extract(day: str) -> list[int]:
    return [1, 2, 3]


async def transform(part: int) -> int:
    return part * 10


async def load(rows: list[int]) -> int:
    if failures:
        raise OSError(failures.pop())
    return sum(rows)


@forge.task(queue="flows", max_attempts=2, retry=Retry(base="200ms"))
async def nightly(day: str, ctx: Context) -> int:
    parts = await ctx.step("extract", extract, day)
    steps = (ctx.step.using(key=part)("transform", transform, part) for part in parts)
    return await ctx.step("load", load, await asyncio.gather(*steps))


# An agent: each call of the model and of a tool is a step, so that no token is paid for twice.


async def ask_model(messages: list[str]) -> dict[str, Any]:
    if "weather: rain" in messages:
        return {"answer": "take an umbrella"}
    return {"tool": "weather"}


async def use_tool(name: str) -> str:
    return f"{name}: rain"


@forge.task(queue="flows")
async def agent(question: str, ctx: Context) -> str:
    messages = [question]
    while True:
        reply = await ctx.step("model", ask_model, messages)
        if "answer" in reply:
            return reply["answer"]
        messages.append(await ctx.step("tool", use_tool, reply["tool"]))


async def main() -> None:
    async with forge.worker(queues=["flows"]):
        article = await publish.aenqueue("queues")
        await article.asend("approve", {"by": "Ada"})
        print(await article.aresult(timeout=30))
        print("looks:", await (await poll.aenqueue("export-1")).aresult(timeout=30))
        print(await (await travel.aenqueue(["flight", "car", "hotel"])).aresult(timeout=30))
        night = await nightly.aenqueue("monday")
        print("loaded:", await night.aresult(timeout=30))
        names = [one.name for one in await night.asteps()]
        print("stored once each:", len(names) == len(set(names)) == 5)
        print(await (await agent.aenqueue("what to wear?")).aresult(timeout=30))


if __name__ == "__main__":
    asyncio.run(main())
