"""Real worker processes under ``forge worker``: start, refusals, probes, drain."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SHOP = """
import sys
from forge_jobs import Forge

forge = Forge("memory://")

@forge.task(queue="mail")
async def send(to: str) -> None: ...

heavy = sorted({"typer", "rich"} & set(sys.modules))
print("terminal libraries:", heavy, file=sys.stderr)
"""


class Command:
    """A ``forge worker`` in a folder of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forge_jobs", "worker", *arguments],
                cwd=folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def log_text(self) -> str:
        return self.log.read_text()

    def until(self, what: Callable[[], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, self.log_text()
            time.sleep(0.05)

    def until_up(self, count: int = 1) -> None:
        self.until(lambda: self.log_text().count(" is up") == count)


Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "broken.py").write_text("import shop\nraise RuntimeError('no luck')\n")
    (tmp_path / "plain.py").write_text("forge = 'not one'\n")
    (tmp_path / "bare.py").write_text("from forge_jobs import Forge\n\nforge = Forge()\n")
    commands: list[Command] = []

    def run(*arguments: str) -> Command:
        commands.append(Command(tmp_path, *arguments))
        return commands[-1]

    yield run
    for command in commands:
        if command.process.poll() is None:
            os.killpg(command.process.pid, signal.SIGKILL)
            command.process.wait()


def probe(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def free_ports(count: int) -> int:
    """The first of several adjacent free ports."""
    for port in range(20_000 + os.getpid() % 20_000, 60_000, count):
        try:
            for number in range(count):
                with socket.socket() as sock:
                    sock.bind(("127.0.0.1", port + number))
        except OSError:
            continue
        return port
    raise AssertionError("no free ports")


def test_a_worker_starts_answers_probes_and_drains(start: Start) -> None:
    port = free_ports(2)
    command = start(
        "shop:forge", "--queues", "mail", "--processes", "2", "--health-port", f"{port}"
    )
    command.until_up(2)
    for number in (port, port + 1):
        command.until(lambda number=number: probe(number, "/readyz") == 200)  # type: ignore[misc]
        assert probe(number, "/healthz") == 200
        assert probe(number, "/metrics") == 200
        assert probe(number, "/elsewhere") == 404
    command.process.terminate()
    assert command.process.wait(60) == 0
    assert "Traceback" not in command.log_text()
    assert "destroyed" not in command.log_text()


def test_workers_do_not_import_terminal_libraries(start: Start) -> None:
    command = start("shop:forge", "--queues", "mail")
    command.until_up()
    assert "terminal libraries: []" in command.log_text()
    os.killpg(command.process.pid, signal.SIGINT)
    assert command.process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere:forge", "--queues", "mail"], "there is no module 'nowhere'"),
        (["shop:frog", "--queues", "mail"], "shop has no 'frog'; did you mean shop:forge?"),
        (["plain:forge", "--queues", "mail"], "is a str, not a Forge object"),
        (["broken:forge", "--queues", "mail"], "RuntimeError: no luck"),
        (["bare:forge"], "no queue to serve"),
    ],
)
def test_a_permanent_start_error_is_reported_once(
    start: Start, arguments: list[str], words: str
) -> None:
    command = start(*arguments, "--processes", "2")
    assert command.process.wait(60) == 1
    assert command.log_text().count(words) == 1
    assert "is up" not in command.log_text()
