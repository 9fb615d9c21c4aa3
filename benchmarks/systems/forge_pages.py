"""Mission Control in the agent's process: every page visited and timed, or served on a socket.

The time of a page is that of the server: from the request in its hands to the last byte out of
them, without a network in between.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

# What only the oldest jobs of a crowd have; here, so that no agent loads what fills a store.
RARE = "rare"
STATES = ("scheduled", "pending", "held", "running", "failed", "done", "dead", "cancelled")
RANGES = ("5m", "30m", "1h", "3h", "6h", "24h", "7d")
LISTS = ("/jobs", "/scheduled", "/retries", "/dead")
FILTERS = (
    "queue=queue_1", "kind=kind_3", f"kind={RARE}", "kind=none", "tag=batch", f"tag={RARE}",
    "tag=none", "key=key-500000", "key=none", "error=TimeoutError", f"error={RARE}", "error=none",
    "payload=somebody", "payload=none", "queue=queue_1&kind=kind_9&tag=batch",
)  # fmt: skip
PLAIN = ("/cron", "/queues", "/workers", "/limits", "/health", "/audit")
SUMS = (
    *(f"/tasks?range={word}" for word in ("1h", "6h", "24h", "7d", "30d")), "/tasks?by=queue",
    "/tasks/kind_1", "/tasks/kind_1?range=30d",
    *(f"/tags?range={word}" for word in ("1h", "24h", "30d")),
    "/tags/show?tag=tag_1", "/tags/show?tag=tag_1&range=30d",
)  # fmt: skip
ACTIONS = ("retry", "cancel", "delete", "run-now")
REACHED = ("", f"tag={RARE}", f"error={RARE}", "queue=queue_1")
# What twenty windows may show at the same time.
OPEN = (
    "/", "/?range=5m", "/?range=1h", "/?range=7d", *LISTS, *PLAIN, "/jobs?status=done",
    "/jobs?status=running", "/jobs?queue=bench", "/jobs?tag=batch", "/jobs?kind=noop",
    "/dead?tag=none",
)  # fmt: skip
CHANGE_SECONDS = 30.0
STOP_SECONDS = 5


def addresses(jobs: list[str], since: str, until: str) -> list[str]:
    """Every page with every tab and filter; `since` and `until` lie in the middle of the week."""
    times = (f"from={since}&until={until}", f"from={since}", f"until={since}")
    rare = (f"kind={RARE}", f"tag={RARE}", f"error={RARE}")
    return [
        "/", *(f"/?range={word}" for word in RANGES), "/?range=7d&queue=queue_1", *LISTS, *PLAIN,
        *SUMS,
        *(f"/jobs/{job}" for job in jobs),
        *(f"/jobs?status={state}" for state in STATES),
        *(f"/jobs?status={state}&{given}" for state in STATES for given in rare),
        *(f"{page}?{given}" for page in LISTS for given in (*FILTERS, *times)),
        *(f"/dead?sort={sort}" for sort in ("ended", "-enqueued")), "/scheduled?sort=-due",
        "/jobs?status=running&sort=started",
        *(f"/bulk/{action}?{given}" for action in ACTIONS for given in REACHED),
    ]  # fmt: skip


class Pages:
    """Verbs of an agent that shows its store to people."""

    _app: Any
    _served: ExitStack | None = None

    def prepare(self) -> dict[str, Any]:
        """Make the tables."""
        asyncio.run(self._prepare())
        return {}

    def visit(self, times: int, every: int = 1) -> dict[str, Any]:
        """Milliseconds of every page (or every so many), `times` visits each after one that loads
        templates and opens connections."""
        return {"took": asyncio.run(self._visit(times, every))}

    def open_pages(self) -> dict[str, Any]:
        """Serve until `close_pages`; the address."""
        self._served = ExitStack()
        return {"address": self._served.enter_context(_served(self._app.forge.url))}

    def spent(self) -> dict[str, Any]:
        """Processor seconds of this process so far."""
        return {"cpu": time.process_time()}

    def close_pages(self) -> dict[str, Any]:
        if self._served is not None:
            self._served.close()
            self._served = None
        return {}

    def changes(self, address: str, samples: int) -> dict[str, Any]:
        """Seconds from the commit of a new job to its sight on an open page, over a socket."""
        return {"took": asyncio.run(self._changes(address, samples))}

    async def _prepare(self) -> None:
        await self._app.forge.aready()
        await self._app.forge.aclose()

    async def _visit(self, times: int, every: int) -> dict[str, list[float]]:
        from forge_jobs import Forge
        from forge_jobs.web import mission_control

        forge = Forge(self._app.forge.url)
        app = mission_control(forge)
        took: dict[str, list[float]] = {}
        try:
            for address in (await _every_address(app))[::every]:
                await _get(app, address)
                took[address] = [(await _get(app, address))[0] for _ in range(times)]
        finally:
            await app.aclose()
            await forge.aclose()
        return took

    async def _changes(self, address: str, samples: int) -> list[float]:
        host, _, port = address.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        request = f"GET /live?view=%2Fjobs HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
        writer.write(request.encode())
        took: list[float] = []
        dice = random.Random(1)
        try:
            for _ in range(samples):
                job = await self._app.noop.using(delay="30d").aenqueue()
                at = time.monotonic()
                await asyncio.wait_for(_shown(reader, job.id), CHANGE_SECONDS)
                took.append(time.monotonic() - at)
                await asyncio.sleep(dice.random())
        finally:
            writer.close()
            await self._app.forge.aclose()
        return took


@contextmanager
def _served(url: str) -> Iterator[str]:
    """Mission Control on a thread of its own; its address."""
    import uvicorn

    from forge_jobs import Forge
    from forge_jobs.web import mission_control

    forge = Forge(url)
    app = mission_control(forge)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )  # fmt: skip
    server = uvicorn.Server(config)

    async def serve(place: socket.socket) -> None:
        try:
            await server.serve(sockets=[place])
        finally:
            await app.aclose()
            await forge.aclose()

    with socket.create_server(("127.0.0.1", 0), backlog=1_024) as place:
        thread = threading.Thread(target=lambda: asyncio.run(serve(place)), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{place.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(STOP_SECONDS * 2)


async def _shown(reader: asyncio.StreamReader, text: str) -> None:
    """Until the stream has held the text."""
    wanted, tail = text.encode(), b""
    while wanted not in tail:
        piece = await reader.read(65_536)
        if not piece:
            raise ConnectionError("the stream ended")
        tail = tail[-len(wanted) :] + piece


async def _every_address(app: Any) -> list[str]:
    """Every page; the newest job of each state stands for all of them."""
    answers = [await _get(app, f"/api/jobs?status={state}&limit=1") for state in STATES]
    jobs = [job for _, body in answers for job in json.loads(body)["rows"]]
    newest = max(datetime.fromisoformat(job["enqueued_at"]) for job in jobs)
    middle = newest.astimezone(UTC) - timedelta(days=3)
    moments = (middle, middle + timedelta(hours=1))
    since, until = (at.strftime("%Y-%m-%dT%H:%M") for at in moments)
    return addresses([job["id"] for job in jobs], since, until)


async def _get(app: Any, address: str) -> tuple[float, bytes]:
    """Milliseconds of one visit and what it gave; ValueError for an answer that is not a page."""
    path, _, query = address.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": query.encode(), "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 4711), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    status, body = 0, bytearray()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)
        body.extend(message.get("body", b""))

    started = time.perf_counter()
    await app(scope, receive, send)
    took = (time.perf_counter() - started) * 1_000
    if status != 200:
        raise ValueError(f"{address} answered {status}")
    return took, bytes(body)
