"""``telegram-gateway demo`` and ``fake-telegram`` as processes, from start to Ctrl-C."""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from telegram_gateway.cli import app
from tests.gateway.fake.conftest import TOKEN


@asynccontextmanager
async def command(*words: str) -> AsyncGenerator[list[str], None]:
    """The output up to the line about Ctrl-C; the process must exit with 0 on SIGINT."""
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "telegram_gateway", *words], stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        lines: list[str] = []
        async with asyncio.timeout(60):
            while not lines or "Ctrl-C" not in lines[-1]:
                line = await process.stdout.readline()
                assert line, lines
                lines.append(line.decode().strip())
        yield lines
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.processes
async def test_fake_telegram_command(client: httpx2.AsyncClient) -> None:
    async with command("fake-telegram", "--port", "0") as lines:
        base = lines[0].removeprefix("export TELEGRAM_API_BASE=")
        answer = await client.get(f"{base}/bot{TOKEN}/getMe")
        assert answer.json()["result"]["id"] == 4711


@pytest.mark.processes
async def test_the_demo_keeps_its_folder(client: httpx2.AsyncClient, tmp_path: Path) -> None:
    async with command("demo", "--port", "0", "--folder", str(tmp_path / "kept")) as lines:
        chat = lines[0].split()[1]
        page = await client.get(chat)
        assert page.status_code == 200
        assert "default-src 'none'" in page.headers["content-security-policy"]
        said = {"bot": "echo", "text": "over the wire"}
        assert (await client.post(f"{chat}/api/messages", json=said)).status_code == 200
        texts: list[str] = []
        async with asyncio.timeout(60):
            while texts != ["over the wire"] * 2:
                found = (await client.get(f"{chat}/api/live?bot=echo")).json()
                texts = [entry["message"]["text"] for entry in found["entries"]]
        assert (await client.get(lines[1].split()[1])).status_code == 200
        other = {"origin": "http://evil.example"}
        for path in ("messages", "service", "skip"):
            refused = await client.post(f"{chat}/api/{path}", json=said, headers=other)
            assert refused.status_code == 403
        named = await client.get(chat, headers={"host": "evil.example"})
        assert named.status_code == 421
        assert (await client.get(f"{chat}/api/live?bot=stranger")).status_code == 404
        empty = await client.post(f"{chat}/api/messages", json={"bot": "echo", "text": " "})
        assert empty.status_code == 400
    assert (tmp_path / "kept" / "gateway.db").exists()


@pytest.mark.parametrize("verb", ["demo", "fake-telegram"])
def test_a_port_in_use_is_named_in_the_error(verb: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        found = CliRunner().invoke(app, [verb, "--port", port])
    assert found.exit_code == 1
    assert f"port {port}: " in found.output
    assert "--port" in found.output
