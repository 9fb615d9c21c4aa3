"""Many commands that time out, are cancelled, fork twice and ignore signals; nothing may be left.

1,000 of them in ``make storm``. Every process carries a mark in its environment, by which survivors
are found wherever they hide; zombies and scratch folders are looked for, too. No database is
needed; the storm stands under SQLite, which everybody has.
"""

import asyncio
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from forge_jobs.core.instant import to_datetime
from forge_jobs.core.job import NewJob
from forge_jobs.engine.running.context import Context, JobInfo, RunEnvironment
from forge_jobs.handlers import Choice, CmdExecHandler, Command, Text
from forge_jobs.kit.clock import SYSTEM_CLOCK
from rigs.storms.order import Order

BACKENDS = ("sqlite",)
PROGRAM = Path(__file__).parents[2] / "tests" / "handlers" / "command_program.py"
ACTS = ("quick", "daemon", "daemon-and-wait", "family", "ignores-sigterm", "exits-on-sigterm")
AT_ONCE = 8
# Elsewhere a process that leaves its group cannot be found again; there it is not asked for.
SURVIVORS_ARE_SEEN = sys.platform == "linux"


@dataclass(frozen=True)
class Options:
    """How much of it; ``jobs`` are commands."""

    jobs: int = 1_000
    seed: int = 0


def storm(backend: str, order: Order) -> bool:
    """Raise it; whether nothing was left."""
    asked = order.apply(Options(), Options(jobs=50))
    print(f"Commands: {asked.jobs:,} runs, seed {asked.seed}.", flush=True)
    began = time.monotonic()
    with order.folder() as folder:
        found = asyncio.run(Commands(runs=asked.jobs, seed=asked.seed, folder=folder).run())
    ends = ", ".join(f"{count} {how}" for how, count in sorted(found.ends.items()))
    print(f"  {found.ran:,} runs in {time.monotonic() - began:.0f} s: {ends}")
    print(f"  survivors, zombies, guards, folders left: {len(found.problems)}")
    for problem in found.problems[:10]:
        print(f"      {problem}")
    return not found.problems and found.ran == asked.jobs


@dataclass(slots=True)
class Found:
    """What a storm of commands left, and how its runs ended."""

    ran: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])
    problems: list[str] = field(default_factory=list[str])


class _Silent:
    """The link of a job that nobody listens to."""

    stop_reason = None

    def report(self, **said: object) -> None:
        pass

    def add_successor(self, job: object) -> None:
        raise AssertionError("commands carry nothing")


class Commands:
    """A storm of commands; the same seed gives the same commands."""

    def __init__(self, *, runs: int, seed: int, folder: Path) -> None:
        self._runs = runs
        self._random = random.Random(seed)
        self._folder = folder
        self._mark = f"storm-{os.getpid()}-{seed}"
        self._scratch = folder / "scratch"
        self._around = RunEnvironment(
            lambda: "HOST",
            7,
            SYSTEM_CLOCK,
            None,
            lambda kind, value: NewJob(kind=kind, queue="default"),  # type: ignore[arg-type]
        )
        command = Command(
            sys.executable,
            [str(PROGRAM), "{act}", "{file}"],
            {"act": Choice(ACTS), "file": Text()},
            env={"STORM_MARK": self._mark},
        )
        self._handler = CmdExecHandler(commands={"program": command}, grace_s=0.1)

    async def run(self) -> Found:
        """All runs, a few at once, then the search for what is left."""
        found = Found()
        self._scratch.mkdir()
        before = tempfile.tempdir
        tempfile.tempdir = str(self._scratch)
        try:
            turns = asyncio.Semaphore(AT_ONCE)
            plans = [self._plan() for _ in range(self._runs)]
            await asyncio.gather(*(self._one(turns, found, *plan) for plan in plans))
        finally:
            tempfile.tempdir = before
        found.problems += self._left()
        return found

    def _plan(self) -> tuple[str, str, float]:
        if SURVIVORS_ARE_SEEN:
            act = self._random.choice(ACTS)
        else:
            act = self._random.choice(["quick", "family", "ignores-sigterm", "exits-on-sigterm"])
        end = self._random.choice(["timeout", "cancel", "cancel", "twice"])
        return act, end, self._random.uniform(0.0, 0.4)

    async def _one(
        self, turns: asyncio.Semaphore, found: Found, act: str, end: str, after_s: float
    ) -> None:
        async with turns:
            info = JobInfo("ID", "cmd_exec", "q", 1, 5, to_datetime(SYSTEM_CLOCK.now()), ())
            payload = {
                "command": "program",
                "args": {"act": act, "file": str(self._folder / "pids")},
                "timeout_secs": 1 if end == "timeout" else 60,
            }
            ctx = Context(info, _Silent(), self._around)
            running = asyncio.create_task(self._handler.run(ctx, payload))
            if end != "timeout":
                await asyncio.sleep(after_s)
                running.cancel()
                if end == "twice":
                    await asyncio.sleep(after_s / 8)
                    running.cancel()
            try:
                outcome = await running
                found.ends[type(outcome).__name__] += 1
            except asyncio.CancelledError:
                found.ends["cancelled"] += 1
            found.ran += 1

    def _left(self) -> list[str]:
        problems = [
            f"survivor: {process.pid} {process.info['cmdline']}"
            for process in psutil.process_iter(["cmdline"])
            if self._is_marked(process)
        ]
        mine = psutil.Process()
        for child in mine.children(recursive=True):
            try:
                # A server that other tests share has children of its own, and buries them itself.
                if child.status() == psutil.STATUS_ZOMBIE and child.ppid() == mine.pid:
                    problems.append(f"zombie: {child.pid}")
                elif "guard_main" in " ".join(child.cmdline()):
                    problems.append(f"guard: {child.pid}")
            except psutil.NoSuchProcess:
                continue
        deadline = time.monotonic() + 60
        while os.listdir(self._scratch) and time.monotonic() < deadline:
            time.sleep(0.05)
        problems += [f"scratch folder: {name}" for name in os.listdir(self._scratch)]
        return problems

    def _is_marked(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("STORM_MARK") == self._mark
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            return False
