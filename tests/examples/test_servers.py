"""The examples that are servers: started, used, and stopped by Ctrl-C."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.examples.commands import EXAMPLES, PATIENCE_S, argv, named_command

pytestmark = pytest.mark.processes
TOKEN = "4711:AAabcdefghijklmnopqrstuvwxyz0123456"


@contextlib.contextmanager
def started(command: str, folder: Path, **environment: str) -> Iterator[None]:
    """The server as its command starts it; it must end well on Ctrl-C."""
    log = folder / f"{command.split()[1]}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            argv(command),
            cwd=folder,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            code = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
    assert code in (0, -signal.SIGINT, 130), log.read_text()
    assert "Traceback" not in log.read_text(), log.read_text()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def poll(client: httpx.Client, path: str, wanted: str) -> str:
    """Ask until the answer holds the text; the last answer."""
    until, answer = time.monotonic() + PATIENCE_S, "no answer"
    while time.monotonic() < until:
        with contextlib.suppress(httpx.TransportError):
            answer = client.get(path).text
            if wanted in answer:
                return answer
        time.sleep(0.05)
    raise AssertionError(f"{path}: {answer}")


def test_a_web_application_runs_its_own_jobs(tmp_path: Path) -> None:
    port = free_port()
    command = f"{named_command('lifespan.py')} --port {port}"
    with (
        started(command, tmp_path),
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        poll(client, "/jobs/none", "no such job")
        accepted = client.post("/greet/Ada")
        assert accepted.status_code == 202
        answer = poll(client, f"/jobs/{accepted.json()['job']}", '"done"')
        assert '"result":"Hello, Ada!"' in answer


def test_a_bot_echoes_without_a_token(tmp_path: Path) -> None:
    """The steps of examples/gateway/README.md."""
    readme = (EXAMPLES / "gateway" / "README.md").read_text()
    for step in ("telegram-gateway fake-telegram", "telegram-gateway poll", TOKEN):
        assert step in readme
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    settings = {
        "TELEGRAM_API_BASE": base,
        "DATABASE_URL": "sqlite:///gateway.db",
        "BOTS_CONFIG": str(EXAMPLES / "gateway/bots.yaml"),
        "BOT_HELLO_TOKEN": TOKEN,
        "BOT_HELLO_SECRET": "a-secret-of-thirty-two-characters",
    }
    with (
        started(f"telegram-gateway fake-telegram --port {port}", tmp_path),
        httpx.Client(base_url=base) as client,
    ):
        poll(client, "/control/bots", "[")
        with started("telegram-gateway poll", tmp_path, **settings):
            poll(client, "/control/calls", "getMe")
            wrote = client.post("/control/bots/4711/messages", json={"text": "hello", "chat": 7})
            assert wrote.status_code == 200, wrote.text
            poll(client, "/control/calls", "sendMessage")
            chat = client.get("/control/bots/4711/chats/7").json()
    said = [(entry["by"], entry["message"]["text"]) for entry in chat]
    assert said == [("user", "hello"), ("bot", "hello")]


def test_the_container_files_name_what_exists() -> None:
    compose = EXAMPLES / "gateway/compose.yaml"
    service = yaml.safe_load(compose.read_text())["services"]["gateway"]
    root = (compose.parent / service["build"]["context"]).resolve()
    image = (root / service["build"]["dockerfile"]).read_text()
    assert (compose.parent / service["volumes"][0].split(":")[0]).is_file()
    for line in re.findall(r"^COPY (requirements/.+) requirements/$", image, re.M):
        assert all((root / name).is_file() for name in line.split())
    assert 'CMD ["telegram-gateway", "serve"]' in image
    assert f"BOTS_CONFIG={service['volumes'][0].split(':')[1]}" in image
