"""SIGTERM to a real uvicorn whose application runs a worker: nothing is left behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forge_jobs import Forge

pytestmark = pytest.mark.processes
PATIENCE_S = 60
JOBS = """
import asyncio, threading
from forge_jobs import Forge

forge = Forge()
go_on = threading.Event()

@forge.task(queue="mail")
async def awaited():
    await asyncio.Event().wait()

@forge.task(queue="mail")
def plain():
    go_on.wait()
"""
APPLICATIONS = {
    "fastapi": """
from fastapi import FastAPI
from forge_jobs.integrations.fastapi import lifespan
from tasks import forge

app = FastAPI(lifespan=lifespan(forge, queues=["mail:4"], shutdown_timeout="0.2s"))
""",
    "litestar": """
from litestar import Litestar
from forge_jobs.integrations.litestar import ForgePlugin
from tasks import forge

app = Litestar(plugins=[ForgePlugin(forge, queues=["mail:4"], shutdown_timeout="0.2s")])
""",
}


def start(folder: Path, url: str) -> "subprocess.Popen[str]":
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    return subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "web:app", "--port", str(port)],
        cwd=folder,
        env={**os.environ, "FORGE_URL": url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def running(forge: Forge, wanted: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while forge.jobs(status="running").count() != wanted:
        assert time.monotonic() < until, "the jobs have not started"
        time.sleep(0.02)


async def registered(url: str) -> int:
    async with Forge(url) as forge:
        store = await forge.aready()
        return len(await store.processes.all())


def check(framework: str, url: str, folder: Path) -> None:
    (folder / "tasks.py").write_text(JOBS)
    (folder / "web.py").write_text(APPLICATIONS[framework])
    with Forge(url) as forge:
        for kind in ("awaited", "awaited", "plain", "plain", "awaited", "awaited"):
            forge.enqueue(kind, queue="mail", check=False)
        server = start(folder, url)
        try:
            running(forge, 4)
            assert asyncio.run(registered(url)) == 1
        finally:
            server.send_signal(signal.SIGTERM)
            _, said = server.communicate(timeout=PATIENCE_S)
        # Uvicorn sends itself the signal again once it has shut down.
        assert server.returncode in (0, -signal.SIGTERM), said
        assert "Traceback" not in said, said
        assert [(job.status, job.attempts) for job in forge.jobs()] == [("pending", 0)] * 6
    assert asyncio.run(registered(url)) == 0


def test_sigterm_hands_jobs_back_and_deregisters(shared_url: str, tmp_path: Path) -> None:
    check("fastapi", shared_url, tmp_path)


def test_litestar_likewise(tmp_path: Path) -> None:
    check("litestar", f"sqlite:///{tmp_path}/jobs.db", tmp_path)
