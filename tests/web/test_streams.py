"""Live pages over real sockets: changes show, slow readers get no backlog, outages are shown, and
nothing is rendered while nothing is written."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from forge_jobs import Forge
from forge_jobs.core.job import NewJob
from forge_jobs.kit.clock import SYSTEM_CLOCK, SystemClock
from forge_jobs.web import mission_control
from forge_jobs.web.live import LiveHub
from tests.postgres.server import private_server
from tests.web.harness import serve_on_socket

DEADLINE_S = 60.0


class Stream:
    """The client side of a live page."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._text = ""
        self.received = 0

    async def event(self, name: str, *having: str) -> str:
        """The next event of that name that contains all of these texts."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                while "\n\n" in self._text:
                    event, _, self._text = self._text.partition("\n\n")
                    if f"event: {name}\n" in event and all(word in event for word in having):
                        return event
                piece = await self._reader.read(1 << 16)
                assert piece, "the stream ended"
                self.received += len(piece)
                # chunk lengths are between the lines of events; ignore them
                self._text += piece.decode(errors="replace").replace("\r\n", "\n")


@asynccontextmanager
async def stream(address: str, page: str, *, limit: int = 1 << 16) -> AsyncGenerator[Stream]:
    where = urlsplit(address)
    reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=limit)
    request = f"GET /live?view={quote(page, safe='')} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n"
    writer.write(request.encode())
    try:
        yield Stream(reader)
    finally:
        # stopping the server waits for its connections
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def test_a_change_shows_on_an_open_page(any_url: str) -> None:
    """``make bench`` measures the delay (two seconds on an idle machine); here it must arrive."""
    forge = Forge(any_url)
    store = await forge.aready()
    with serve_on_socket(mission_control(forge)) as address:
        async with stream(address, "/jobs") as page, stream(address, "/queues") as queues:
            await page.event("view")
            enqueued = await store.jobs.enqueue([NewJob(kind="send", queue="mail")])
            await page.event("view", f"job-{enqueued[0].id}")
            await queues.event("view", "q-mail")
            await store.queues.ensure("late", slots=1)
            await queues.event("view", "q-late")
    await forge.aclose()


class FastClock(SystemClock):
    """Sleeps a fiftieth of the time."""

    async def sleep(self, span_s: float) -> None:
        await super().sleep(span_s / 50)


async def test_a_reader_that_never_reads_gets_no_backlog() -> None:
    """After 300 states of 200 KB the reader gets what the socket buffers hold, then the newest
    state."""
    hub, number, size = LiveHub(FastClock()), 0, 200_000

    async def render() -> str:
        nonlocal number
        number += 1
        return f"<p>state {number}.</p>" + "x" * size

    async def live(request: Request) -> StreamingResponse:
        return StreamingResponse(hub.stream("a", render), media_type="text/event-stream")

    with serve_on_socket(Starlette(routes=[Route("/live", live)])) as address:
        async with stream(address, "/", limit=1 << 12) as lazy, stream(address, "/") as eager:
            async with asyncio.timeout(DEADLINE_S):
                while number < 300:
                    await eager.event("view")
            newest = number
            event_text = ""
            while (
                not event_text or int(event_text.partition("state ")[2].partition(".")[0]) < newest
            ):
                event_text = await lazy.event("view")
            assert lazy.received < 60 * size, "a backlog was kept for it"


async def test_nothing_is_rendered_while_nothing_is_written() -> None:
    stamp, renders = "1", 0

    async def render() -> str:
        nonlocal renders
        renders += 1
        return f"<p>{renders}</p>"

    async def stamped() -> str:
        return stamp

    hub = LiveHub(SYSTEM_CLOCK, stamped)
    reading: AsyncIterator[str] = hub.stream("a", render)
    assert await anext(reading) == "retry: 2000\n\n"
    assert "<p>1</p>" in await anext(reading)
    following = asyncio.ensure_future(anext(reading))
    await asyncio.wait([following], timeout=4)
    assert renders == 1
    stamp = "2"
    async with asyncio.timeout(DEADLINE_S):
        assert "<p>2</p>" in await following


async def test_an_outage_of_postgres_shows_and_ends_on_an_open_page(tmp_path: Path) -> None:
    """The server is stopped and started again while a page is open."""
    with private_server() as server:
        forge = Forge(server.url(schema="outage"))
        store = await forge.aready()
        await store.queues.ensure("mail", slots=2)
        with serve_on_socket(mission_control(forge)) as address:
            async with stream(address, "/queues") as page, stream(address, "/jobs") as jobs:
                await page.event("view", "q-mail")
                await jobs.event("view")
                await asyncio.to_thread(server.stop, immediate=True)
                await page.event("trouble", "cannot be reached")
                await jobs.event("trouble")
                await asyncio.to_thread(server.start)
                await page.event("view", "q-mail")
                await store.queues.ensure("late", slots=1)
                await page.event("view", "q-late")
                await jobs.event("view")
        await forge.aclose()


async def test_a_missing_database_folder_is_an_error_until_it_exists(tmp_path: Path) -> None:
    """The folder of the database is a volume that is mounted late."""
    folder = tmp_path / "volume"
    folder.write_text("not a folder yet")
    forge = Forge(f"sqlite:///{folder}/jobs.db")
    here = httpx.ASGITransport(mission_control(forge), client=("127.0.0.1", 4711))
    async with httpx.AsyncClient(transport=here, base_url="http://localhost") as client:
        assert (await client.get("/queues")).status_code == 503
        assert (await client.get("/readyz")).status_code == 503
        folder.unlink()
        folder.mkdir()
        assert (await client.get("/queues")).status_code == 200
    await forge.aclose()


async def test_a_locked_database_only_delays_updates(tmp_path: Path) -> None:
    """Another program holds an exclusive lock: the page keeps its content and updates later."""
    path = tmp_path / "jobs.db"
    forge = Forge(f"sqlite:///{path}")
    store = await forge.aready()
    with serve_on_socket(mission_control(forge)) as address:
        async with stream(address, "/queues") as page:
            await page.event("view")
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN EXCLUSIVE")
            waiting = asyncio.create_task(store.queues.ensure("mail", slots=2))
            done, _ = await asyncio.wait([waiting], timeout=2)
            assert not done or waiting.exception() is not None
            other.execute("ROLLBACK")
            other.close()
            await asyncio.wait([waiting])
            await store.queues.ensure("mail", slots=2)
            await page.event("view", "q-mail")
    await forge.aclose()
