"""Lanes: jobs of one lane run one after the other, in order. Run: python examples/lanes.py"""

import asyncio

from forge_jobs import Context, Forge, Job, Retry

forge = Forge()
sent: dict[str, list[str]] = {}


@forge.task(queue="chat", retry=Retry(delays=["1s"]))
async def send(chat: str, text: str, ctx: Context) -> None:
    if text == "two" and ctx.job.attempts == 1:
        raise ConnectionError("try again")
    await asyncio.sleep(0.05)
    sent.setdefault(chat, []).append(text)


async def main() -> None:
    async with forge.worker(queues=["chat:10"]):  # 10 slots: lanes run side by side
        jobs: list[Job[None]] = []
        for text in ("one", "two", "three"):
            # serial (the default): one at a time. A job that waits for its retry lets others pass.
            jobs.append(await send.using(lane="chat:ada").aenqueue("ada", text))
            # strict: nothing overtakes; the lane waits for the retry.
            strict = send.using(lane="chat:bob", order="strict")
            jobs.append(await strict.aenqueue("bob", text))
        for job in jobs:
            await job.aresult(timeout=30)
    print("serial:", *sent["ada"])
    print("strict:", *sent["bob"])


if __name__ == "__main__":
    asyncio.run(main())
