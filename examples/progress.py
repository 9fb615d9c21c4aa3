"""Progress, log lines and cancel, from another thread. Run: python examples/progress.py"""

import asyncio
import time

from forge_jobs import Context, Forge, JobFailed

forge = Forge()


@forge.task(queue="export")
def export(rows: int, ctx: Context) -> str:
    for row in range(1, rows + 1):
        ctx.raise_if_cancelled()  # a thread cannot be interrupted from outside: it has to ask
        time.sleep(0.01)
        if row % 20 == 0:
            ctx.log.info("wrote %d rows", row)
            ctx.progress(row / rows, f"{row} of {rows} rows")
    return f"exported {rows} rows"


def watch_and_cancel(job_id: str) -> None:
    """Needs the id only, so it may run in any process. In a shell: forge jobs cancel ID"""
    job = forge.job(job_id)
    while (job.refresh().progress or 0) < 0.1:
        time.sleep(0.1)
    print(f"progress: {job.progress:.0%}, {job.progress_note}")
    print("cancel accepted:", job.cancel("the customer left"))
    try:
        job.result(timeout=30)
    except JobFailed as failure:
        print(f"{failure.status}: {failure.error}")
    print("log:", *(line.message for line in job.logs()), sep="\n  ")


async def main() -> None:
    async with forge.worker(queues=["export"]):
        short = await export.aenqueue(40)
        print(await short.aresult(timeout=30))
        long = await export.aenqueue(1_000)
        await asyncio.to_thread(watch_and_cancel, long.id)


if __name__ == "__main__":
    asyncio.run(main())
