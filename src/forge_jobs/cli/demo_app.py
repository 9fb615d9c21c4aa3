"""The sample application of ``forge demo``: a small shop with mail, pictures, orders and reports.

A job's number determines whether it fails, so that every demo shows the same variety.
"""

import asyncio

from forge_jobs import Context, Dead, Forge, NoopEcho, Retry, Throttled
from forge_jobs.core.selection import Acted, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.ops import queries
from forge_jobs.ops.actions import JobActions

ORDER_PARTS = ("cup", "saucer", "spoon")
forge = Forge()
soon = Retry(base="1s", max="4s")
forge.register(NoopEcho(), queue="orders", retry=soon)
forge.rate_limit("newsletter", "60/m", burst=5)


@forge.task(queue="mail", max_attempts=3, retry=soon)
async def send_mail(number: int, to: str, ctx: Context) -> str:
    """Some fail and succeed on a retry, some can never succeed."""
    await SYSTEM_CLOCK.sleep(0.02 + number % 7 * 0.01)
    if number % 17 == 0:
        raise Dead(f"there is no mailbox {to}")
    if number % 11 == 0 and ctx.job.attempts == 1:
        raise ConnectionError("the mail server hung up")
    return f"sent to {to}"


@forge.task(queue="mail", max_attempts=2, retry=soon)
async def remind(number: int, to: str) -> str:
    """Enqueued for later."""
    await SYSTEM_CLOCK.sleep(0.01)
    return f"reminded {to}"


@forge.task(queue="mail", scopes=["newsletter"], concurrency=2)
async def newsletter(number: int, ctx: Context) -> str:
    """Has a cluster-wide rate limit of a letter per second, and runs at most two at once."""
    await ctx.rate_limit.acquire("newsletter")
    await SYSTEM_CLOCK.sleep(0.05)
    return f"letter {number} is out"


@forge.task(queue="orders")
async def count_stock(number: int, shop: str, ctx: Context) -> str:
    """Jobs of one shop share a lane: one at a time, in order."""
    for step in range(10):
        ctx.progress((step + 1) / 10, f"shelf {step + 1} of 10")
        await SYSTEM_CLOCK.sleep(0.15)
    ctx.log.info("counted %s", shop)
    return f"{shop} is counted"


@forge.cron("*/5 * * * * *", name="sweep-every-5-seconds")
@forge.task(queue="orders")
async def sweep() -> str:
    """A schedule, every five seconds: retries the newest dead pictures."""
    store = await forge.aready()
    dead = await queries.jobs(store, Filter(queue="pictures", statuses=(JobStatus.DEAD,)), limit=3)
    ids = tuple(job.id for job in dead.jobs)
    acted = await JobActions(store, actor="demo").retry(Selection(ids=ids)) if ids else Acted()
    return f"{acted.changed} tried again"


@forge.cron("0 3 * * *", tz="Europe/Berlin", name="nightly-archive", payload={"days": 30})
@forge.task(queue="reports")
async def archive(days: int) -> str:
    """A schedule, every night."""
    return f"archived what is older than {days} days"


@forge.task(queue="pictures", max_attempts=2, retry=soon)
def resize(number: int, width: int, ctx: Context) -> int:
    """Blocking code, in a thread."""
    for step in range(4):
        ctx.progress((step + 1) / 4, f"{step + 1} of 4 passes")
        SYSTEM_CLOCK.pause(0.01 + number % 5 * 0.005)
    if number % 29 == 0:
        raise ValueError(f"picture {number} is not a picture")
    return width


@forge.task(queue="orders", max_attempts=3, retry=soon)
async def sync_order(number: int, ctx: Context) -> str:
    """Is throttled now and then, which spends no attempt."""
    await SYSTEM_CLOCK.sleep(0.03)
    age_us = SYSTEM_CLOCK.now() - int(ctx.job.enqueued_at.timestamp() * 1_000_000)
    if number % 37 == 0 and age_us < 1_000_000:
        raise Throttled(retry_after="2s")
    return f"order {number} is up to date"


_refused: set[int] = set()


async def find_price(part: str) -> dict[str, str | int]:
    """A part of an order."""
    await SYSTEM_CLOCK.sleep(0.2 + len(part) * 0.05)
    return {"part": part, "cents": 100 * len(part)}


async def reserve(number: int) -> str:
    """Fails at the first try."""
    await SYSTEM_CLOCK.sleep(0.3)
    if number not in _refused:
        _refused.add(number)
        raise ConnectionError("the stock server hung up")
    _refused.discard(number)
    return f"shelf {number % 7}"


async def ship(number: int, cents: int) -> str:
    """The last step."""
    await SYSTEM_CLOCK.sleep(0.4)
    return f"parcel {number}, paid {cents} cents"


@forge.task(queue="orders", max_attempts=3, retry=soon)
async def fulfil_order(number: int, ctx: Context) -> str:
    """A workflow: parallel steps, a step that is tried again, a sleep, an event that the demo sends
    a little later."""
    found = await asyncio.gather(
        *(ctx.step.using(key=part)("find price", find_price, part) for part in ORDER_PARTS)
    )
    await ctx.step.using(retry=Retry(delays=["0.5s"]))("reserve", reserve, number)
    await ctx.sleep("3s")
    paid = await ctx.wait_for("payment", key=number, timeout="1h", type=dict[str, int])
    ctx.log.info("%d parts, paid %s", len(found), paid)
    return await ctx.step("ship", ship, number, paid["cents"])


@forge.task(queue="reports", cpu=True, max_attempts=2, timeout="20s")
def report(number: int, below: int) -> int:
    """CPU-bound work in a child process: counts the primes below a number."""
    sieve = bytearray([1]) * below
    sieve[:2] = b"\0\0"
    for factor in range(2, int(below**0.5) + 1):
        if sieve[factor]:
            sieve[factor * factor :: factor] = bytes(len(range(factor * factor, below, factor)))
    return sum(sieve)
