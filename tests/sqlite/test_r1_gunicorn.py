"""R1 with a real preloading server: gunicorn imports the application, then forks its workers."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forge_jobs import Forge

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 3
REQUESTS = 60
PATIENCE_S = 20.0


@contextmanager
def serving(path: Path, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with log.open("wb") as words:
        server = subprocess.Popen(
            [
                sys.executable, "-m", "gunicorn", "--preload", "--workers", str(WORKERS),
                "--bind", f"127.0.0.1:{port}", "--no-control-socket",
                "tests.sqlite.preloaded_app:app",
            ],
            cwd=ROOT,
            env={**os.environ, "FORGE_URL": f"sqlite:///{path}", "TMPDIR": str(log.parent)},
            stdout=words,
            stderr=words,
        )  # fmt: skip
    try:
        yield server, f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        server.wait(PATIENCE_S)
        await_silence(port)


def await_silence(port: int) -> None:
    """Workers whose server was killed end by themselves."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.1)
    raise AssertionError("a worker of the server still listens")


def answer(address: str) -> tuple[int, str, str]:
    """The worker that answered, the job it stored, and the job that was stored before the fork."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE_S) as response:
                pid, job, first = response.read().decode().split()
                return int(pid), job, first
        except urllib.error.HTTPError:
            raise
        except (OSError, urllib.error.URLError):
            # Not up yet, or its worker was ended in this moment.
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def from_another_process(path: Path) -> str:
    script = (
        f"import forge_jobs as f; s = f.Forge('sqlite:///{path}'); print(s.enqueue('k', {{}}).id)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return done.stdout.strip()


@pytest.mark.processes
def test_r1_a_preloading_server_loses_no_job(path: Path, tmp_path: Path) -> None:
    accepted: set[str] = set()
    workers: set[int] = set()
    with serving(path, tmp_path / "log") as (server, address):
        for number in range(REQUESTS):
            pid, job, first = answer(address)
            accepted |= {job, first}
            workers.add(pid)
            if number == REQUESTS // 2:
                # The server forks again, and its former worker ends.
                os.kill(pid, signal.SIGKILL)
        # The server is gone, and a program of its own comes and goes: what it leaves behind as the
        # last one to close must not be taken from the workers, one of which still answers.
        server.kill()
        server.wait(PATIENCE_S)
        accepted.add(from_another_process(path))
        accepted.add(answer(address)[1])
        accepted.add(from_another_process(path))
    output = (tmp_path / "log").read_text()
    assert len(workers) > 1, output
    link = sqlite3.connect(path)
    try:
        assert link.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        link.close()
    forge = Forge(f"sqlite:///{path}")
    try:
        assert [forge.job(job).refresh().status for job in accepted] == ["pending"] * len(accepted)
    finally:
        forge.close()
    assert "Traceback" not in output, output
