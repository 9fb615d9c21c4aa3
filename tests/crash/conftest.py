"""Worker processes on one store, what their handlers noted, and the state of the jobs."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from forge_jobs import Forge
from forge_jobs.core.job import JobRecord, NewJob
from rigs.storms.history import read_all

APP = "tests.crash.jobs:forge"


class Site:
    """One database, its workers and a client."""

    def __init__(self, root: Path, folder: Path, url: str) -> None:
        self.root = root
        self.folder = folder
        self.url = url
        self.forge = Forge(url)
        self.log = folder / "workers.log"
        self.processes: list[subprocess.Popen[bytes]] = []

    # ------------------------------------------------------------------------------- processes

    def worker(self, *, lease: float = 2, grace: float = 5, slots: int = 10) -> Any:
        """One worker process without a parent."""
        return self._start("forge_jobs.cli.worker_child", APP, lease, grace, slots, [])

    def parent(
        self, *, processes: int = 2, lease: float = 2, grace: float = 5, slots: int = 10
    ) -> Any:
        """``forge worker``."""
        more = ["--processes", str(processes)]
        return self._start("forge_jobs", "worker", lease, grace, slots, more)

    def _start(
        self, module: str, first: str, lease: float, grace: float, slots: int, more: list[str]
    ) -> "subprocess.Popen[bytes]":
        names = [first] if first == APP else [first, APP]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", module, *names, "--queues", f"crash:{slots}",
                    "--lease", str(lease), "--grace", str(grace), *more,
                ],
                cwd=self.root, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={**os.environ, "CRASH_FOLDER": str(self.folder), "CRASH_URL": self.url},
                start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
                process.wait()
        self.forge.close()

    # ------------------------------------------------------------------------------------- jobs

    def enqueue(self, kind: str, name: str, **more: Any) -> str:
        options = {key: more.pop(key) for key in ("max_attempts",) if key in more}
        return self.forge.enqueue(kind, {"name": name, **more}, queue="crash", **options).id

    def fill(self, kind: str, count: int) -> None:
        """Many jobs in one transaction."""
        jobs = [
            NewJob(kind=kind, queue="crash", payload=b'{"name":"%d"}' % number)
            for number in range(count)
        ]
        self.forge.client.enqueue_many(jobs, None)

    def job(self, job_id: str) -> JobRecord:
        found = self.forge.client.access.run(lambda store: store.jobs.get(job_id))
        assert found is not None
        return found

    def status(self, job_id: str) -> str:
        return str(self.job(job_id).status)

    def noted(self, op: str, name: str | None = None) -> list[dict[str, Any]]:
        return [
            entry
            for entry in read_all(self.folder)
            if entry["op"] == op and (name is None or entry["name"] == name)
        ]

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    # ---------------------------------------------------------------------------------- waiting

    def until(self, what: Callable[[], object], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"not in {seconds} s; the log:\n{self.log_text()}"
            time.sleep(0.05)

    def until_status(self, job_id: str, status: str, seconds: float = 60) -> None:
        self.until(lambda: self.status(job_id) == status, seconds)

    def workers_of(self, parent: "subprocess.Popen[bytes]") -> list[psutil.Process]:
        return [
            child
            for child in psutil.Process(parent.pid).children()
            if "forge_jobs.cli.worker_child" in child.cmdline()
        ]

    def until_started(self, count: int) -> None:
        """That many worker processes take part, with or without a parent."""
        self.until(lambda: self.log_text().count("worker started") >= count)

    def until_up(self, parent: "subprocess.Popen[bytes]", count: int) -> None:
        self.until(lambda: self.log_text().count("is up") >= count)

    def until_gone(self, pids: list[int], seconds: float = 30) -> None:
        self.until(lambda: not any(_alive(pid) for pid in pids), seconds)


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def site(project_root: Path, tmp_path: Path, shared_url: str) -> Iterator[Site]:
    made = Site(project_root, tmp_path, shared_url)
    yield made
    made.end()
