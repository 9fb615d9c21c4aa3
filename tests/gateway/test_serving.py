"""The serving process: its listener, stalled clients, and the last replies at SIGTERM."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from telegram_gateway import timed_protocol
from telegram_gateway.fake.server import listen
from telegram_gateway.gateway import Gateway
from telegram_gateway.serving import server_config
from tests.gateway.conftest import SECRET, Bots, update
from tests.gateway.fake_api import fake_api, serve_app, until

ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"
pytestmark = pytest.mark.processes


@pytest.fixture
async def bots(tmp_path: Path) -> AsyncIterator[Bots]:
    async with fake_api() as api:
        yield Bots(api, tmp_path)


@contextmanager
def serving(
    bots: Bots, yaml: str, log: Path, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, **bots.environment(yaml, **{"LISTEN": "127.0.0.1:0", **variables})}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "telegram_gateway", "serve"], env=env, stderr=file, stdout=file
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


async def port_in(log: Path) -> int:
    """The port that the log names."""
    pattern = re.compile(r"listening on 127\.0\.0\.1:(\d+) for the bots ")
    await until(lambda: pattern.search(log.read_text(encoding="utf-8")) is not None)
    found = pattern.search(log.read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1])


async def test_g11j_listening_is_logged_after_the_bind(bots: Bots, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serving(bots, ECHO, log):
        port = await port_in(log)
        with socket.create_connection(("127.0.0.1", port), timeout=10):
            pass
        taken = tmp_path / "taken"
        with serving(bots, ECHO, taken, LISTEN=f"127.0.0.1:{port}") as second:
            assert await asyncio.to_thread(second.wait, 60) == 1
        shown = taken.read_text(encoding="utf-8")
    assert f"LISTEN: cannot listen on 127.0.0.1:{port}: Address already in use" in shown
    assert "listening on" not in shown
    assert "Traceback" not in shown


async def test_g11k_the_answer_of_a_finished_handler_is_sent_before_the_exit(
    bots: Bots, tmp_path: Path
) -> None:
    asked, answer_now = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        asked.set()
        await answer_now.wait()
        return JSONResponse({"text": "the last answer"})

    log = tmp_path / "log"
    async with serve_app(Starlette(routes=[Route("/", slow, methods=["POST"])])) as url:
        target = f"{{url: '{url}/', network: private, timeout: 60s}}"
        yaml = f"bots: {{back: {{handler: http, async: true, requireAuth: false, http: {target}}}}}"
        with serving(bots, yaml, log) as process:
            port = await port_in(log)
            headers = {"x-telegram-bot-api-secret-token": SECRET}
            async with httpx2.AsyncClient(trust_env=False, headers=headers, timeout=30) as client:
                kind = {"content-type": "application/json"}
                address = f"http://127.0.0.1:{port}/bot/back"
                sent = await client.post(address, content=update(1), headers=kind)
                assert sent.status_code == 200
                await asyncio.wait_for(asked.wait(), 60)
                process.send_signal(signal.SIGTERM)
                # The worker claims nothing more once readiness has failed for a moment.
                await asyncio.sleep(2)
                answer_now.set()
                assert await asyncio.to_thread(process.wait, 60) == 0
    assert bots.api.texts() == ["the last answer"]


async def test_g11i_a_client_that_does_not_finish_its_headers_is_cut_off(
    bots: Bots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed_protocol, "HEADER_TIMEOUT_S", 1.0)
    gateway = bots.gateway(ECHO)
    request = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    beginnings = {
        "nothing": b"",
        "half a line": b"GET /heal",
        "half the headers": request[:-2],
        "the second request": request + request[:-2],
    }
    async with gateway.running(workers=False), serve_gateway(gateway) as port:
        for name, beginning in beginnings.items():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(beginning)
            started = time.monotonic()
            async with asyncio.timeout(30):
                received = await reader.read()
            assert time.monotonic() - started < 10, name
            assert received.count(b"200 OK") == beginning.count(request), name
            writer.close()
        # A client that is only slow, and a request that takes longer than the limit, are not.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for byte in (request[:20], request[20:]):
            writer.write(byte)
            await asyncio.sleep(0.3)
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        writer.close()


@asynccontextmanager
async def serve_gateway(gateway: Gateway) -> AsyncIterator[int]:
    """Serve the gateway with its own settings of the server, on a free port."""
    listener = listen()
    port = int(listener.getsockname()[1])
    server = uvicorn.Server(server_config(gateway))
    server.capture_signals = nullcontext  # type: ignore[method-assign]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    await until(lambda: server.started)
    try:
        yield port
    finally:
        server.should_exit = True
        await task
