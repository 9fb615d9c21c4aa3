"""A service with many customers: one large customer never delays the others.

Run: python examples/tenants/tenants.py
"""

import asyncio
from collections.abc import Generator
from contextvars import ContextVar
from typing import Any

from forge_jobs import Context, Forge, NewJob

forge = Forge()
tenant: ContextVar[str] = ContextVar("tenant")
started: list[str] = []


@forge.around_enqueue
def tag(job: NewJob) -> Generator[NewJob, Any, None]:
    """Every job of a request has the tenant of that request as a tag."""
    yield job.replace(tags=(*job.tags, f"tenant:{tenant.get()}")) if tenant.get("") else job


@forge.around_run
def choose_tenant(ctx: Context) -> Generator[None, None, None]:
    """Where a web application has its middleware: the tenant of the job, for all code below."""
    [name] = [one.removeprefix("tenant:") for one in ctx.job.tags if one.startswith("tenant:")]
    token = tenant.set(name)
    try:
        yield
    finally:
        tenant.reset(token)


@forge.task(queue="work", concurrency=2, per="args.customer")
async def invoice(customer: str, number: int) -> str:
    started.append(tenant.get())
    await asyncio.sleep(0.05)
    return f"{tenant.get()}-{number}"


def request(name: str, invoices: int) -> None:
    """A request of a customer, as the web application handles it."""
    token = tenant.set(name)
    try:
        invoice.enqueue_many([(name, number) for number in range(invoices)])
    finally:
        tenant.reset(token)


async def main() -> None:
    request("large", 20)
    request("small", 2)
    async with forge.worker(["work:4"]):
        while forge.jobs(status=["pending", "held", "running"]).count():
            await asyncio.sleep(0.05)
    print("small waited for large:", started.index("small") > 4)
    for name in ("large", "small"):
        print(name, forge.jobs(tag=f"tenant:{name}", status="done").count())


if __name__ == "__main__":
    asyncio.run(main())
