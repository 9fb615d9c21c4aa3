"""A complete Mission Control for a browser: store, worker and pages, on its own thread.

The pages are served twice over the same store: without credentials, where everybody is admin, and
with tokens and a password, for tests of roles.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvicorn

from forge_jobs import Context, Dead, Forge, NoopEcho, Retry
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.ops.actions import Store
from forge_jobs.web import mission_control, standalone
from tests.web.harness import credentials

T = TypeVar("T")
PATIENCE_S = 60.0
PARTS = ("box", "label", "invoice")


class OutOfStock(Exception):
    """A declared error of a step."""


async def charge(number: int) -> dict[str, str]:
    await asyncio.sleep(0.05)
    return {"id": f"ch_{number}", "password": "hunter2"}


async def part_of(part: str) -> str:
    await asyncio.sleep(0.1)
    return f"{part} is ready"


async def gift() -> None:
    raise OutOfStock("no gift left")


def shop(url: str) -> Forge:
    """Tasks that fail, wait, run long or fire by cron."""
    forge = Forge(url)
    forge.rate_limit("smtp", "50/m")
    forge.register(NoopEcho(), queue="echo")
    mended: set[str] = set()
    mended_numbers: set[int] = set()

    @forge.task(queue="mail", max_attempts=1)
    async def send(to: str, ctx: Context) -> str:
        """Dead at the first run, done when it is retried."""
        if to not in mended:
            mended.add(to)
            raise Dead(f"no mailbox for {to}")
        return f"sent to {to}"

    @forge.task(queue="quick")
    async def note(number: int = 0) -> int:
        return number

    @forge.task(queue="slow", concurrency=50)
    async def wait(ctx: Context) -> None:
        for step in range(600):
            ctx.progress(step / 600, f"step {step}")
            await asyncio.sleep(0.1)

    @forge.task(queue="hosts", concurrency=1, per="args.host")
    async def fetch(host: str, seconds: float) -> str:
        """Only one at a time for each host."""
        await asyncio.sleep(seconds)
        return host

    @forge.task(queue="quick")
    async def welcome(number: int, ctx: Context) -> None:
        """Fails once, then enqueues a note."""
        ctx.log.info("greets %d", number)
        if number not in mended_numbers:
            mended_numbers.add(number)
            raise ConnectionError("the line is down")
        await note.aenqueue(number)

    @forge.task(queue="orders", max_attempts=1)
    async def order(number: int, ctx: Context) -> str:
        """Charges, fetches in parallel, waits for a payment; dead if it is paid in ``"sand"``."""
        await ctx.step("charge", charge, number)
        fetch = ctx.step.using
        await asyncio.gather(*(fetch(key=part)("fetch", part_of, part) for part in PARTS))
        with contextlib.suppress(OutOfStock):
            await ctx.step.using(errors=(OutOfStock,))("gift", gift)
        await ctx.wait_for("voucher", key=number, timeout="0.2s", default=None)
        await ctx.sleep("0.5s")
        paid = await ctx.wait_for(["paid", "cancelled"], key=number, timeout="3d")
        await ctx.step("ship", part_of, "parcel")
        if isinstance(paid.payload, dict) and paid.payload.get("in") == "sand":
            raise Dead(f"order {number} was paid in sand")
        return f"order {number} is on its way"

    deployed: set[int] = set()

    @forge.task(queue="orders", max_attempts=3, retry=Retry(base="10ms"))
    async def gift_wrap(number: int, ctx: Context) -> str:
        """A deploy renames a step, and removes another and a sleep, while the job is retried."""
        await ctx.step("charge", charge, number)
        if number in deployed:
            await ctx.step("choose wrapping", part_of, "wrapping")
        else:
            await ctx.step("choose paper", part_of, "paper")
            with contextlib.suppress(OutOfStock):
                await ctx.step.using(errors=(OutOfStock,))("gift", gift)
            await ctx.sleep("0.2s", name="let the glue dry")
        await ctx.step("tie", part_of, "ribbon")
        if number not in deployed:
            deployed.add(number)
            raise ConnectionError("stopped by a deploy")
        return f"gift {number} is wrapped"

    @forge.cron("0 3 * * *", name="nightly")
    @forge.task(queue="quick")
    async def clean() -> None:
        return None

    return forge


class Site:
    """Runs until ``stop``; ``run_on_store`` runs a coroutine on its loop."""

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self.url = f"sqlite:///{folder / 'site.db'}"
        self.address = ""
        self.staff_address = ""
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._error: BaseException | None = None
        self.forge = shop(self.url)
        self.staff_app = mission_control(self.forge, auth=credentials())
        self._thread = threading.Thread(target=self._run, name="site")

    def start(self) -> "Site":
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        if self._error is not None:
            raise self._error
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def run_on_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        async def asked() -> T:
            return await work(await self.forge.aready())

        return self.do(asked())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def enqueue(self, *jobs: NewJob) -> list[str]:
        created = self.run_on_store(lambda store: store.jobs.enqueue(jobs))
        return [job.id for job in created]

    def count(self, status: JobStatus, **wanted: Any) -> int:
        asked = Filter(statuses=(status,), **wanted)
        return self.run_on_store(lambda store: store.metrics.count(asked, cap=10_000)).jobs

    def wait_for(self, count: int, status: JobStatus, **wanted: Any) -> None:
        until = time.monotonic() + PATIENCE_S
        while (found := self.count(status, **wanted)) != count:
            assert time.monotonic() < until, f"{found} jobs are {status}, not {count}"
            time.sleep(0.05)

    def wait_for_event(self, name: str, key: str) -> None:
        """Until a job is suspended that waits for this event."""
        until = time.monotonic() + PATIENCE_S
        while not self.run_on_store(lambda store: store.events.waits(name=name, key=key, limit=1)):
            assert time.monotonic() < until, f"no job waits for {name} {key}"
            time.sleep(0.05)

    def _run(self) -> None:
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # the test that waits must hear of it
            self._error = error
        finally:
            self._loop.close()
            self._ready.set()

    async def _serve(self) -> None:
        place = standalone.listen("127.0.0.1", self.port)
        staff = standalone.listen("127.0.0.1", 0)
        config = uvicorn.Config(
            self.staff_app, log_level="error", lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        serve = asyncio.create_task(server.serve(sockets=[staff]))
        async with (
            self.forge.worker(
                queues=["mail:4", "quick:8", "slow:2", "echo:1", "orders:4", "hosts:4"],
                shutdown_timeout="1s",
            ),
            standalone.serve(self.forge, place),
        ):
            self.address = standalone.address(place)
            self.staff_address = standalone.address(staff)
            self.port = int(self.address.rpartition(":")[2])
            self._ready.set()
            await self._stop.wait()
            server.should_exit = True
            await serve
        await self.forge.aclose()
