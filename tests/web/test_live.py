"""The live hub: one rendering for all readers of a page, no backlog, little work when idle."""

import asyncio
import time
from collections.abc import AsyncIterator

from forge_jobs import Forge
from forge_jobs.core.errors import Unavailable
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.web import mission_control
from forge_jobs.web.app import MissionControl
from forge_jobs.web.live import LiveHub


async def event(stream: AsyncIterator[str], name: str) -> str:
    """The next event of that name."""
    async with asyncio.timeout(30):
        async for part in stream:
            if part.startswith(f"event: {name}\n"):
                return part
    raise AssertionError("the stream ended")


async def test_a_page_is_rendered_once_for_all_its_readers() -> None:
    hub, renders = LiveHub(SYSTEM_CLOCK), 0

    async def render() -> str:
        nonlocal renders
        renders += 1
        return f"<p>{renders}</p>"

    streams = [hub.stream("admin /", render) for _ in range(20)]
    shown = await asyncio.gather(*(event(stream, "view") for stream in streams))
    assert len(set(shown)) == 1
    assert hub.streams == 20
    await asyncio.gather(*(event(stream, "view") for stream in streams))
    assert renders < 20, "not once for each of them"
    for stream in streams:
        await stream.aclose()
    assert hub.streams == 0
    before = renders
    await asyncio.sleep(1.5)
    assert renders == before, "without readers nothing is rendered"


async def test_a_slow_reader_gets_the_newest_state_and_no_backlog() -> None:
    hub, number = LiveHub(SYSTEM_CLOCK), 0

    async def render() -> str:
        nonlocal number
        number += 1
        return f"<p>{number}</p>" + "x" * 100_000

    slow, quick = hub.stream("a", render), hub.stream("a", render)
    assert "<p>1</p>" in await event(slow, "view")
    for _ in range(3):
        await event(quick, "view")
    newest = number
    part = await event(slow, "view")
    assert f"<p>{newest}</p>" in part
    await slow.aclose()
    await quick.aclose()


async def test_an_error_is_sent_and_the_page_follows_when_it_is_over() -> None:
    hub, down = LiveHub(SYSTEM_CLOCK), True

    async def render() -> str:
        if down:
            raise Unavailable("cannot reach postgresql://forge:sesame@db/jobs")
        return "<p>back</p>"

    stream = hub.stream("a", render)
    event_text = await event(stream, "trouble")
    assert "sesame" not in event_text
    down = False
    assert "back" in await event(stream, "view")
    await stream.aclose()


async def test_fifty_idle_streams_use_little_processor_time() -> None:
    forge = Forge("memory://")
    app = mission_control(forge)
    readers = [
        asyncio.create_task(
            open_stream(app, ("/", "/jobs", "/queues", "/workers", "/dead")[place % 5])
        )
        for place in range(50)
    ]
    async with asyncio.timeout(60):
        while app.hub.streams < 50:
            await asyncio.sleep(0.05)
    await asyncio.sleep(2)
    begun, at = time.process_time(), time.monotonic()
    await asyncio.sleep(4)
    share = (time.process_time() - begun) / (time.monotonic() - at)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    await forge.aclose()
    assert share < 0.05, f"{share:.1%} of a core"


async def open_stream(app: MissionControl, page: str) -> None:
    """Keep a live stream open through ASGI, without a socket."""
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": "/live", "raw_path": b"/live", "root_path": "",
        "query_string": f"view={page}".encode(), "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 4711), "server": ("127.0.0.1", 80),
    }  # fmt: skip

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: object) -> None:
        return None

    await app(scope, receive, send)  # pyright: ignore[reportArgumentType]
