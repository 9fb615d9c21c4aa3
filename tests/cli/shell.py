"""``Shell``: runs the real ``forge`` command as a process, in a folder, on a SQLite file."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forge_jobs.backends.url import open_store
from forge_jobs.core.job import JobRecord

TIMEOUT_S = 120


@dataclass(frozen=True)
class Shell:
    """``forge`` in a folder of its own; FORGE_URL names the file ``forge.db`` there."""

    folder: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/forge.db"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "FORGE_URL": self.url, "COLUMNS": "80", "PYTHONWARNINGS": "error"}

    def forge(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "forge_jobs", *words],
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def ok(self, *words: str) -> str:
        done = self.forge(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def data(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "--json"))

    @contextmanager
    def running(self, *words: str) -> Iterator["subprocess.Popen[str]"]:
        """A command that runs until the block ends; it is stopped or killed in any case."""
        process = subprocess.Popen(
            [sys.executable, "-m", "forge_jobs", *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
            if process.stdout is not None:
                process.stdout.close()

    def wait_for(self, job_id: str, status: str) -> JobRecord:
        """Wait until the job has that state. Reads the file, because that costs little."""

        async def poll() -> JobRecord:
            store = open_store(self.url)
            await store.open()
            try:
                deadline = time.monotonic() + TIMEOUT_S
                while True:
                    job = await store.jobs.get(job_id)
                    assert job is not None
                    if job.status == status:
                        return job
                    assert time.monotonic() < deadline, f"still {job.status}: {job}"
                    await asyncio.sleep(0.05)
            finally:
                await store.close()

        return asyncio.run(poll())


def stop(process: "subprocess.Popen[str]", number: signal.Signals = signal.SIGTERM) -> int:
    """Stop a running command with a signal; its exit code."""
    process.send_signal(number)
    return process.wait(TIMEOUT_S)
