"""A task on a schedule; no process besides the worker is needed. Run: python examples/cron.py"""

import asyncio

from forge_jobs import Context, Forge

forge = Forge()
ticks: asyncio.Queue[str] = asyncio.Queue()


# Six fields begin with seconds. With five this would be minutes: "0 9 * * mon-fri" is 9:00.
@forge.cron("*/1 * * * * *", tz="Europe/Paris", missed="once", overlap="skip")
@forge.task(queue="reports")
async def report(ctx: Context) -> None:
    [tick] = [tag.removeprefix("tick:") for tag in ctx.job.tags if tag.startswith("tick:")]
    await ticks.put(tick)


async def main() -> None:
    async with forge.worker(queues=["reports"]):  # stores the schedule, then fires it
        for _ in range(3):
            print("report for", await ticks.get())
        # A schedule stays in the store when the worker ends. This one is only an example.
        await forge.schedules.adisable("report")
        for fire in reversed(await forge.schedules.ahistory("report")):
            print(fire.outcome, fire.tick.isoformat())
        await forge.schedules.adelete("report")


if __name__ == "__main__":
    asyncio.run(main())
