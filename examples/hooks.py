"""Hooks around every enqueue and every run: tags, timing. Run: python examples/hooks.py"""

import asyncio
import time
from collections.abc import Generator
from contextvars import ContextVar

from forge_jobs import Context, EnqueueOutcome, Forge, NewJob

forge = Forge()
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


@forge.around_enqueue
def store_tenant(job: NewJob) -> Generator[NewJob, EnqueueOutcome, None]:
    """The job carries the tenant of its caller to the worker, as a tag."""
    stored = yield job.replace(tags=(*job.tags, f"tenant:{tenant.get()}"))
    print(f"stored {job.kind} of {tenant.get()} as {stored.id}")


@forge.around_run
def restore_tenant(ctx: Context) -> Generator[None, None, None]:
    [name] = [tag.removeprefix("tenant:") for tag in ctx.job.tags if tag.startswith("tenant:")]
    token = tenant.set(name)
    try:
        yield  # the job runs here, and in the hooks that were registered later
    finally:
        tenant.reset(token)


@forge.around_run
def measure(ctx: Context) -> Generator[None, None, None]:
    begin = time.perf_counter()
    try:
        yield
    finally:
        print(f"{ctx.job.kind} of {tenant.get()} took {time.perf_counter() - begin:.4f} s")


@forge.task(queue="hooks")
async def invoice(number: int) -> str:
    return f"invoice {number} of {tenant.get()}"


async def main() -> None:
    async with forge.worker(queues=["hooks"]):
        for name, number in (("acme", 7), ("umbrella", 8)):
            tenant.set(name)
            job = await invoice.aenqueue(number)
            print(await job.aresult(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
