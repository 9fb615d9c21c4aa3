"""Old and new releases work on one store at once; an incompatible one locks the old ones out."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import forge_jobs
from forge_jobs.backends.postgres import function_sets
from forge_jobs.backends.url import open_store
from forge_jobs.core.job import JobRecord
from forge_jobs.core.status import JobStatus
from forge_jobs.store.store import SchemaStatus
from rigs.storms.history import now, read_all
from tests.postgres.server import PrivateServer

from . import OPTIONS, PRODUCER, ROUND
from .releases import CLAIMED_BY_NEXT, breaking_release, next_release

ROOT = Path(__file__).parents[2]
# Jobs of each producer while processes are killed; UPGRADE_JOBS=5000 for a long run.
JOBS = int(os.environ.get("UPGRADE_JOBS", "70"))
KILLS = max(3, JOBS // 100)
CALM = 2 * len(OPTIONS)

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where each release's package is."""
    return {
        "old": Path(forge_jobs.__file__).parents[1],
        "next": next_release(tmp_path_factory.mktemp("next")),
        "breaking": breaking_release(tmp_path_factory.mktemp("breaking")),
    }


class Cluster:
    """Processes of several releases on one store."""

    def __init__(self, url: str, folder: Path, releases: dict[str, Path]) -> None:
        self.url = url
        self.folder = folder
        self._releases = releases
        self._log = folder / "workers.log"
        self.workers: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.killed: dict[int, float] = {}
        self._round = 0

    def _environment(self, release: str, **more: str) -> dict[str, str]:
        path = os.pathsep.join((str(self._releases[release]), str(ROOT)))
        return {
            **os.environ, "PYTHONPATH": path, "UPGRADE_RELEASE": release, "UPGRADE_URL": self.url,
            "UPGRADE_FOLDER": str(self.folder), **more,
        }  # fmt: skip

    def start(self, *names: str) -> None:
        """Workers of these releases, until all of them take part."""
        wanted = self.log().count("worker started") + len(names)
        for release in names:
            self._start(release)
        self.until(lambda: self.log().count("worker started") >= wanted)

    def _start(self, release: str) -> None:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", "forge_jobs.cli.worker_child",
                    "tests.upgrade.application:forge", "--queues", "upgrade:10", "--lease", "2",
                    "--grace", "5",
                ],
                cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env=self._environment(release),
            )  # fmt: skip
        self.workers.append((release, process))

    def stop(self, release: str) -> None:
        """Ends the workers of a release in an orderly way. One that replaced a killed worker may
        still be starting: SIGTERM ends it before it has a handler for it, and before it claims."""
        stopped = [process for name, process in self.workers if name == release]
        for process in stopped:
            process.send_signal(signal.SIGTERM)
        for process in stopped:
            assert process.wait(30) in (0, -signal.SIGTERM), self.log()
        self.workers = [entry for entry in self.workers if entry[0] != release]

    def kill(self, number: int) -> None:
        """kill -9 for one worker, and another of the same release in its place."""
        release, process = self.workers.pop(number)
        process.kill()
        process.wait()
        self.killed[process.pid] = now()
        self._start(release)

    def produce(self, count: int, *names: str) -> None:
        """Producers of these releases at the same time; each asks for the same dedupe keys."""
        self._round += 1
        started = [
            self._producer(release, count, self._round * ROUND + place * PRODUCER)
            for place, release in enumerate(names)
        ]
        for process in started:
            assert process.wait(120) == 0, self.log()

    def _producer(self, release: str, count: int, first: int) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.upgrade.application", str(count), str(first)],
                cwd=self.folder, stdout=log, stderr=log, env=self._environment(release),
            )  # fmt: skip

    def command(self, release: str, module: str, *words: str, **more: str) -> tuple[int, str]:
        """A program of a release: exit code and what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", module, *words],
            cwd=self.folder, env=self._environment(release, FORGE_URL=self.url, **more),
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def until(self, what: Callable[[], object], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"not in {seconds} s; the log:\n{self.log()}"
            time.sleep(0.05)

    def entries(self, op: str) -> list[dict[str, Any]]:
        return [entry for entry in read_all(self.folder) if entry["op"] == op]

    def end(self) -> None:
        for _, process in self.workers:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def cluster(shared_url: str, tmp_path: Path, releases: dict[str, Path]) -> Iterator[Cluster]:
    made = Cluster(shared_url, tmp_path, releases)
    yield made
    made.end()


async def until_all_finished(cluster: Cluster, seconds: float = 60) -> dict[str, JobRecord]:
    """Wait until every acknowledged job has a terminal state, read by the old release."""
    store = open_store(cluster.url)
    await store.open(migrate=False)
    found: dict[str, JobRecord] = {}
    deadline = time.monotonic() + seconds
    try:
        for job_id in {entry["id"] for entry in cluster.entries("enqueued")}:
            while True:
                job = await store.jobs.get(job_id)
                assert job is not None, f"job {job_id} is lost"
                if job.status in (JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED):
                    found[job_id] = job
                    break
                assert time.monotonic() < deadline, f"{job}\n{cluster.log()}"
                time.sleep(0.05)
    finally:
        await store.close()
    return found


def check_effects(cluster: Cluster, jobs: dict[str, JobRecord]) -> None:
    """Each option had its effect, whichever release enqueued the job and whichever ran it."""
    starts, ends = defaultdict[int, list[Any]](list), Counter[int]()
    for entry in cluster.entries("start"):
        starts[entry["n"]].append(entry)
    for entry in cluster.entries("end"):
        ends[entry["n"]] += 1
    buried = {entry["n"]: entry["error"] for entry in cluster.entries("buried")}
    by_key = defaultdict[tuple[int, int], set[str]](set)
    for entry in cluster.entries("enqueued"):
        n, job = entry["n"], jobs[entry["id"]]
        match entry["option"]:
            case "timeout":
                assert job.status is JobStatus.DEAD
                # A kill may strike between the claim and the handler's first line.
                crashed = cluster.killed and "worker process died" in buried[n]
                assert crashed or "timed out after 0.2 s" in buried[n]
            case "expiry":
                assert (job.status, starts[n]) == (JobStatus.CANCELLED, [])
            case "key":
                assert job.status is JobStatus.DONE
                by_key[n // ROUND, n % PRODUCER].add(job.id)
            case option:
                assert (job.status, ends[n] > 0) == (JobStatus.DONE, True)
                for start in starts[n]:
                    wanted = ["blue", f"n{n}"] if option == "tags" else []
                    if option == "note" and "old" not in (entry["release"], start["release"]):
                        wanted = [f"note:from-{n}"]
                    assert start["tags"] == wanted
                if option == "note" and entry["release"] != "old":
                    assert job.options == {"note": f"from-{n}"}
    assert by_key
    assert {len(ids) for ids in by_key.values()} == {1}
    check_lanes(cluster, starts)


def check_lanes(cluster: Cluster, starts: dict[int, list[Any]]) -> None:
    """Jobs of one lane never ran at the same time."""
    ended = {(entry["n"], entry["pid"]): entry["at"] for entry in cluster.entries("end")}
    spans = defaultdict[str, list[tuple[float, float]]](list)
    for entry in cluster.entries("enqueued"):
        if entry["option"] == "lane":
            for start in starts[entry["n"]]:
                over = ended.get((entry["n"], start["pid"]), cluster.killed.get(start["pid"]))
                assert over is not None
                spans[f"lane-{entry['n'] % 2}"].append((start["at"], over))
    assert len(spans) == 2
    for lane in spans.values():
        lane.sort()
        assert all(first[1] <= second[0] for first, second in pairwise(lane))


def seen_pairs(cluster: Cluster) -> set[tuple[str, str, str]]:
    """(option, release that enqueued, release that ran)."""
    by = {entry["n"]: entry for entry in cluster.entries("enqueued")}
    return {
        (by[start["n"]]["option"], by[start["n"]]["release"], start["release"])
        for start in cluster.entries("start")
        if start["n"] in by
    }


async def schema_of(cluster: Cluster) -> SchemaStatus:
    return await open_store(cluster.url).maintenance.schema_status()


async def test_two_releases_share_a_store(cluster: Cluster) -> None:
    # The old release alone; the next one must not migrate where it may not.
    cluster.start("old")
    cluster.produce(CALM, "old")
    before = await schema_of(cluster)
    code, text = cluster.command("next", "forge_jobs", "jobs", "list", FORGE_AUTO_MIGRATE="0")
    assert code == 1
    assert "forge db migrate" in text
    # A producer of the next release migrates while an old worker is at work. Old workers alone,
    # from before and after the migration, run what both releases enqueue.
    cluster.produce(CALM, "next")
    after = await schema_of(cluster)
    assert (after.current, after.compatible) == ((before.current or 0) + 1, before.compatible)
    assert (after.is_complete, after.is_too_new) == (True, False)
    cluster.start("old")
    cluster.produce(CALM, "old", "next")
    await until_all_finished(cluster)
    cluster.stop("old")
    # Workers of the next release alone.
    cluster.start("next")
    cluster.produce(CALM, "old", "next")
    check_effects(cluster, await until_all_finished(cluster))
    # What expires never runs; which producer's key was first is a matter of chance.
    ran = set(OPTIONS) - {"expiry", "key"}
    both = ("old", "next")
    wanted = {(option, by, runner) for option in ran for by in both for runner in both}
    assert wanted <= seen_pairs(cluster)
    # Both, with kills.
    cluster.start("old", "old", "next")
    dice = random.Random(7)
    for _ in range(KILLS):
        cluster.produce(JOBS // KILLS + 1, "old", "next")
        cluster.kill(dice.randrange(len(cluster.workers)))
    check_effects(cluster, await until_all_finished(cluster, 60 + JOBS / 20))
    for release in ("old", "next"):
        cluster.stop(release)
    # Some tasks fail on purpose, and the lines about them carry a traceback; nothing else does.
    for before, line in pairwise(cluster.log().splitlines()):
        assert not line.startswith("Traceback") or " forge_jobs.engine job " in before, before


@pytest.mark.parametrize("shared_url", ["postgres"], indirect=True)
async def test_functions_of_both_releases_are_used_side_by_side(
    cluster: Cluster, postgres: PrivateServer
) -> None:
    schema = cluster.url.rpartition("schema=")[2]
    cluster.start("old", "next")
    cluster.produce(10 * len(OPTIONS), "old", "next")
    jobs = await until_all_finished(cluster)
    starts = cluster.entries("start")
    claimed_by_next = {entry["n"] for entry in starts if entry["release"] == "next"}
    others = {entry["n"] for entry in starts} - claimed_by_next
    assert claimed_by_next
    assert others
    noted = {
        int(line)
        for line in postgres.sql(
            f"SELECT id FROM {schema}.history WHERE note = '{CLAIMED_BY_NEXT}'"
        ).split()
    }
    keys = {entry["n"]: jobs[entry["id"]].key for entry in cluster.entries("enqueued")}
    assert {keys[n] for n in claimed_by_next & set(keys)} <= noted
    # What the next release prefetched and released may be among those that the old one ran.
    assert {keys[n] for n in others & set(keys)} - noted
    sets = postgres.sql(
        f"SELECT name || ' ' || revision FROM {schema}.function_sets WHERE name ~ '^exchange_v'"
    )
    [revision] = [one.revision for one in function_sets.load() if one.name == "exchange_v1"]
    assert sets.splitlines() == [f"exchange_v1 {revision + 1}", "exchange_v2 1"]


async def test_an_incompatible_release_locks_older_ones_out(cluster: Cluster) -> None:
    cluster.produce(1, "old")
    code, text = cluster.command("breaking", "forge_jobs", "db", "migrate")
    assert code == 0, text
    status = await schema_of(cluster)
    assert status.is_too_new
    assert status.compatible == status.current
    commands = (
        ("forge_jobs.cli.worker_child", "tests.upgrade.application:forge", "--queues", "upgrade:1"),
        ("tests.upgrade.application", "1", "1"),
        ("forge_jobs", "db", "migrate"),
    )
    calls = [(release, *command) for release in ("old", "next") for command in commands]
    with ThreadPoolExecutor(len(calls)) as pool:
        answers = list(pool.map(lambda call: cluster.command(*call), calls))
    for code, text in answers:
        assert code != 0
        [error] = [line for line in text.splitlines() if "upgrade forge-jobs" in line]
        assert f"version {status.current}" in error
    assert await schema_of(cluster) == status
    cluster.produce(1, "breaking")
