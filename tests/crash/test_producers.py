"""Producers in many processes, and producers that are killed in the middle of a call."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forge_jobs import Forge
from forge_jobs.core.selection import Filter

pytestmark = pytest.mark.processes

LIVES = 5
ANSWERS = 5

TALKER = """
import sys
from forge_jobs import Forge

forge = Forge(sys.argv[1])
for number in range(int(sys.argv[2]), 1_000_000):
    name = f"n{number}"
    print("begin", name, flush=True)
    if number % 5:
        job = forge.enqueue("note", {"name": name}, queue="notes")
    else:
        job = forge.enqueue("note", {"name": name}, queue="notes", dedupe_key=name)
    print("ok", name, job.id, flush=True)
"""


def test_one_key_from_8_processes_makes_one_job(project_root: Path, shared_url: str) -> None:
    # The same race in less time where each of these calls is a commit on a server.
    calls = "1000" if shared_url.startswith("sqlite:") else "200"
    racers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.crash.keyed", shared_url, calls],
            cwd=project_root,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    answers = [json.loads(racer.communicate(timeout=240)[0]) for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 8
    ids = {job_id for answer in answers for job_id in answer["ids"]}
    assert len(ids) == 1
    assert sum(answer["fresh"] for answer in answers) == 1
    with Forge(shared_url) as forge:
        page = forge.client.access.run(lambda store: store.jobs.page(Filter(), limit=10))
        assert [job.id for job in page.jobs] == list(ids)


def test_producers_killed_in_the_middle_of_a_call_lose_nothing_acknowledged(
    tmp_path: Path, shared_url: str
) -> None:
    chance = random.Random(5)
    begun: set[str] = set()
    acknowledged: dict[str, str] = {}
    for life in range(LIVES):
        out = tmp_path / f"out-{life}"
        with out.open("wb") as stream:
            talker = subprocess.Popen(
                [sys.executable, "-c", TALKER, shared_url, str(life * 100_000)],
                stdout=stream,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        deadline = time.monotonic() + 60
        try:
            # Each call is two lines: its beginning and its answer.
            while out.read_bytes().count(b"\n") < 2 * ANSWERS:
                assert time.monotonic() < deadline, f"no {ANSWERS} answers in 60 s"
                time.sleep(0.01)
            time.sleep(chance.uniform(0.05, 0.3))
        finally:
            talker.kill()
            talker.wait()
        for line in out.read_text().splitlines():
            match line.split():
                case ["begin", name]:
                    begun.add(name)
                case ["ok", name, job_id] if len(job_id) == 26:
                    acknowledged[name] = job_id
    with Forge(shared_url) as forge:
        stored = _stored(forge)
    assert len(acknowledged) >= LIVES * ANSWERS
    missing = [name for name in acknowledged if stored.get(name) != acknowledged[name]]
    assert missing == []
    assert set(stored) <= begun
    # At most one call per life was cut off before its answer.
    assert len(set(stored) - set(acknowledged)) <= LIVES


def _stored(forge: Forge) -> dict[str, str]:
    names: dict[str, str] = {}
    after = None
    while True:
        page = forge.client.access.run(
            lambda store, after=after: store.jobs.page(Filter(), limit=500, after=after)
        )
        for job in page.jobs:
            name = json.loads(job.payload)["name"]
            assert name not in names, f"{name} is stored twice"
            names[name] = job.id
        if page.next is None:
            return names
        after = page.next
