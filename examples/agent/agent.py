"""An agent: a model, tools, a person who agrees; no call is paid for twice.

Run: python examples/agent/agent.py
"""

import asyncio
from typing import Any

from forge_jobs import Context, Forge, Retry, WaitTimeout

forge = Forge()
calls: list[str] = []  # what was paid for
crashes = ["the connection broke"]


async def ask_model(messages: list[str]) -> dict[str, Any]:
    """The API of a model in real life: expensive, slow, sometimes broken."""
    calls.append("model")
    if len(messages) == 2 and crashes:
        raise ConnectionError(crashes.pop())
    if len(messages) == 1:
        return {"tool": "search", "input": "flights to Oslo", "tokens": 120}
    if not any(message.startswith("book:") for message in messages):
        return {"tool": "book", "input": "flight 7", "tokens": 90}
    return {"answer": "You fly at nine.", "tokens": 40}


async def use_tool(name: str, value: str) -> str:
    calls.append(name)
    return f"{name}: done with {value}"


@forge.task(queue="agents", max_attempts=5, retry=Retry(base="200ms"), timeout="10m")
async def agent(ctx: Context, question: str, budget: int = 1_000) -> str:
    messages, spent = [question], 0
    while spent < budget:
        said = await ctx.step("model", ask_model, messages)  # stored: model, model#2, …
        spent += said["tokens"]
        ctx.progress(min(1, spent / budget), f"{spent} tokens")
        if "answer" in said:
            return said["answer"]
        if said["tool"] == "book" and not await allowed(ctx, said["input"]):
            return "Nobody agreed."
        messages.append(await ctx.step("tool", use_tool, said["tool"], said["input"]))
    return f"stopped after {spent} tokens"


async def allowed(ctx: Context, what: str) -> bool:
    """Ask a person; the wait takes no slot and outlives every deploy."""
    try:
        return bool(await ctx.wait_for("approve", timeout="3d"))
    except WaitTimeout:
        return False


async def main() -> None:
    job = await agent.aenqueue("Find me a flight")
    async with forge.worker(["agents"]):
        while (await job.arefresh()).status != "suspended":
            await asyncio.sleep(0.05)
        print("waits for a person")
        await job.asend("approve", True)
        print(await job.aresult(timeout=30))
    print("paid for:", *calls)
    print("stored:", *(step.name for step in job.steps()))


if __name__ == "__main__":
    asyncio.run(main())
