"""``--health-port`` and ``--health-host``: forks, taken ports, other addresses, planted secrets."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

# The password, the payload, the error and the environment of this application hold secrets.
SHOP = """
import os, time
from forge_jobs import Forge

forge = Forge()

@forge.task(queue="mail")
async def send(token: str) -> None:
    raise RuntimeError(f"refused: password={token}")

@forge.task(queue="mail")
def fork_and_wait(note: str) -> None:
    if os.fork() == 0:
        open(note, "w").write(str(os.getpid()))
        time.sleep(600)
        os._exit(0)

@forge.task(queue="mail")
def write(note: str) -> None:
    open(note, "w").write("ran")
"""
SECRET = "s3cr3t-hunter2"


class Worker:
    """A ``forge worker`` process and its log."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.folder = folder
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forge_jobs", "worker", "shop:forge", *arguments],
                cwd=folder,
                env={**os.environ, "FORGE_URL": "sqlite:///jobs.db", **environment},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def until(self, what: Callable[[], object], seconds: float = 25) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def until_logged(self, words: str, count: int = 1) -> None:
        self.until(lambda: self.log.read_text().count(words) >= count)

    def child_pid(self) -> int:
        return int(re.findall(r"worker 1 \(pid (\d+)\) is up", self.log.read_text())[-1])

    def enqueue(self, kind: str, arguments: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "forge_jobs", "enqueue", kind, arguments, "--queue", "mail"],
            cwd=self.folder,
            env={**os.environ, "FORGE_URL": "sqlite:///jobs.db"},
            check=True,
            capture_output=True,
        )


Start = Callable[..., Worker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "shop.py").write_text(SHOP)
    workers: list[Worker] = []

    def run(*arguments: str, **environment: str) -> Worker:
        workers.append(Worker(tmp_path, "--queues", "mail", *arguments, **environment))
        return workers[-1]

    yield run
    for worker in workers:
        if worker.process.poll() is None:
            os.killpg(worker.process.pid, signal.SIGKILL)
            worker.process.wait()


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str, host: str = "127.0.0.1", method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://{host}:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def is_ready(port: int) -> bool:
    return get(port, "/readyz")[0] == 200


def test_r8_a_forked_grandchild_does_not_keep_the_health_port(
    start: Start, tmp_path: Path, port: int
) -> None:
    worker = start("--health-port", f"{port}", "--log-format", "text")
    worker.until_logged(" is up")
    first = worker.child_pid()
    grandchild_note = tmp_path / "grandchild"
    worker.enqueue("fork_and_wait", f'{{"note": "{grandchild_note}"}}')
    worker.until(lambda: grandchild_note.exists() and grandchild_note.read_text())
    grandchild = psutil.Process(int(grandchild_note.read_text()))
    try:
        os.kill(first, signal.SIGKILL)
        worker.until_logged(" is up", 2)
        worker.until(lambda: is_ready(port))
        assert worker.child_pid() != first
        assert grandchild.is_running()
        assert "cannot listen" not in worker.log.read_text()
    finally:
        grandchild.kill()
    worker.process.terminate()
    assert worker.process.wait(60) == 0


def test_r8_a_taken_health_port_is_retried_while_jobs_run(
    start: Start, tmp_path: Path, port: int
) -> None:
    with socket.create_server(("127.0.0.1", port)):
        worker = start("--health-port", f"{port}")
        worker.until_logged(f"cannot listen on 127.0.0.1:{port} (Address already in use)")
        worker.until_logged(" is up")
        worker.enqueue("write", f'{{"note": "{tmp_path / "note"}"}}')
        worker.until((tmp_path / "note").exists)
        worker.until_logged("cannot listen on", 2)
    worker.until(lambda: is_ready(port))
    worker.until_logged(f"probes and metrics on 127.0.0.1:{port}")
    worker.process.terminate()
    assert worker.process.wait(60) == 0
    assert "Traceback" not in worker.log.read_text()


def test_r8_an_address_that_is_not_this_machines_is_refused(start: Start, port: int) -> None:
    worker = start("--health-port", f"{port}", "--health-host", "192.0.2.1")
    assert worker.process.wait(60) == 1
    log = worker.log.read_text()
    assert f"--health-port: cannot listen on 192.0.2.1:{port}" in log
    assert "--health-host" in log
    assert " is up" not in log


@pytest.mark.parametrize("way", ["flag", "variable"])
def test_u8_probes_and_metrics_answer_on_another_address(start: Start, port: int, way: str) -> None:
    """127.0.0.2 is a loopback address that a server on 127.0.0.1 does not answer on."""
    if way == "flag":
        worker = start("--health-port", f"{port}", "--health-host", "0.0.0.0")
    else:
        worker = start("--health-port", f"{port}", FORGE_HEALTH_HOST="0.0.0.0")
    worker.until_logged(" is up")
    for path in ("/healthz", "/readyz", "/metrics"):
        worker.until(lambda path=path: get(port, path, "127.0.0.2")[0] == 200)  # type: ignore[misc]


def test_u8_the_default_is_loopback(start: Start, port: int) -> None:
    worker = start("--health-port", f"{port}")
    worker.until(lambda: is_ready(port))
    assert get(port, "/healthz", "127.0.0.2")[0] == 0


def test_u8_ipv6_takes_both_families(start: Start, port: int) -> None:
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    worker = start("--health-port", f"{port}", "--health-host", "::")
    worker.until(lambda: is_ready(port))
    assert get(port, "/healthz", "[::1]")[0] == 200


def test_u8_probes_and_metrics_hold_no_secrets(start: Start, tmp_path: Path, port: int) -> None:
    worker = start(
        "--health-port", f"{port}", FORGE_WORKER_PREFIX="shop", API_TOKEN=SECRET, DB_PASSWORD=SECRET
    )
    worker.until_logged(" is up")
    worker.enqueue("send", f'{{"token": "{SECRET}"}}')
    worker.until(lambda: re.search(r"^forge_jobs_retried_total\{.*send.*\} 1", metrics(port), re.M))
    seen = [metrics(port)]
    for path in ("/healthz", "/readyz", "/metrics", "/", "/jobs", f"/?token={SECRET}"):
        for method in ("GET", "POST", "DELETE"):
            seen.append(get(port, path, method=method)[1])
    (tmp_path / "jobs.db").rename(tmp_path / f"{SECRET}.db")
    seen.append(get(port, "/metrics")[1])
    assert not [text for text in seen if SECRET in text or "refused:" in text]
    assert not [text for text in seen if str(tmp_path) in text]


def metrics(port: int) -> str:
    return get(port, "/metrics")[1]


def test_u8_a_client_that_sends_nothing_does_not_stop_probes(start: Start, port: int) -> None:
    worker = start("--health-port", f"{port}")
    worker.until(lambda: is_ready(port))
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
    try:
        worker.until(lambda: is_ready(port), 30)
    finally:
        for connection in silent:
            connection.close()
