"""Limits across real processes: a 429 closes its scope for all, and small storms with kills."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forge_jobs import Forge
from rigs.storms import limits, waiting
from rigs.storms.arguments import StormArguments
from rigs.storms.databases import open_database
from rigs.storms.front_door import ROOT
from rigs.storms.history import read_all

SMALL = {"jobs": 150, "keys": 3, "lanes": 8, "depth": 4, "rated_s": 1.0, "kills": 1, "workers": 2}
CLOSED_S = 2.0


def _worker(url: str, folder: Path) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "STORM_URL": url, "STORM_FOLDER": str(folder)}
    command = [
        sys.executable, "-m", "forge_jobs.cli.worker_child", "rigs.storms.limited_jobs:forge",
        "--queues", "told:4", "--grace", "1",
    ]  # fmt: skip
    log = (folder / "workers.log").open("ab")
    with log:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)


async def _until_told(folder: Path, op: str, count: int) -> list[dict[str, object]]:
    async with asyncio.timeout(60):
        while True:
            told = [entry for entry in read_all(folder) if entry["op"] == op]
            if len(told) >= count:
                return told
            await asyncio.sleep(0.05)


async def test_one_429_closes_the_scope_for_all_processes(tmp_path: Path) -> None:
    with open_database("sqlite", tmp_path) as database:
        workers = [_worker(database.url, tmp_path) for _ in range(2)]
        forge = Forge(database.url)
        try:
            store = await forge.aready()
            async with asyncio.timeout(60):
                while len(await store.processes.all()) < 2:
                    await asyncio.sleep(0.05)
            await forge.aenqueue("refused", {"seconds": CLOSED_S})
            [first] = await _until_told(tmp_path, "refused", 1)
            async with asyncio.timeout(60):
                while "told" not in await store.limits.gates():
                    await asyncio.sleep(0.01)
            for _ in range(6):
                await forge.aenqueue("minded", {})
            for _ in range(6):
                await forge.aenqueue("unminded", {})
            await _until_told(tmp_path, "unminded", 6)
            minded = await _until_told(tmp_path, "minded", 6)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
            await forge.aclose()
    opened_at = float(str(first["at"])) + CLOSED_S
    assert min(float(str(entry["at"])) for entry in minded) >= opened_at - 0.1


@pytest.mark.parametrize("backend", limits.BACKENDS)
def test_a_small_limit_storm(backend: str) -> None:
    assert limits.storm(backend, StormArguments(seed=3, quick=True, given=dict(SMALL)))


def test_a_small_waiting_storm() -> None:
    given = {"jobs": 5_000, "samples": 10, "median_s": 5.0}
    assert waiting.storm("sqlite", StormArguments(seed=3, quick=True, given=given))
