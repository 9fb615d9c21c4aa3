"""The command storm: commands time out, are cancelled, double-fork and ignore signals.

1,000 of them in ``make storm``. Afterwards no process, zombie or scratch folder may be left. Every
process has a marker in its environment, by which survivors are found wherever they were reparented.
The storm fails if no command ran. It uses no database; it is listed under SQLite, which needs no
server.
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
from rigs.storms.arguments import StormArguments

BACKENDS = ("sqlite",)
PROGRAM = Path(__file__).parents[2] / "tests" / "handlers" / "command_program.py"
BEHAVIOURS = ("quick", "daemon", "daemon-and-wait", "family", "ignores-sigterm", "exits-on-sigterm")
MAX_PARALLEL = 8
# On other systems a process that left its process group cannot be found, so it is not tested there.
SURVIVORS_ARE_SEEN = sys.platform == "linux"


@dataclass(frozen=True)
class CommandOptions:
    """The size of the storm; ``jobs`` are commands."""

    jobs: int = 1_000
    seed: int = 0


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm; True if commands ran and nothing was left."""
    options = arguments.apply(CommandOptions(), CommandOptions(jobs=50))
    print(f"Commands: {options.jobs:,} runs, seed {options.seed}.", flush=True)
    began = time.monotonic()
    with arguments.folder() as folder:
        report = asyncio.run(Commands(runs=options.jobs, seed=options.seed, folder=folder).run())
    ends = ", ".join(f"{count} {how}" for how, count in sorted(report.ends.items()))
    print(f"  {report.ran:,} runs in {time.monotonic() - began:.0f} s: {ends or 'none'}")
    print(f"  survivors, zombies, guards, folders left: {len(report.problems)}")
    for problem in report.problems[:10]:
        print(f"      {problem}")
    if not report.ran or not report.started:
        print(f"FAILED: no command was run: check --jobs, and that {PROGRAM.name} can be started")
        return False
    return not report.problems and report.ran == options.jobs


@dataclass(slots=True)
class CommandReport:
    """What the storm left, and how its runs ended. ``started``: processes that wrote their pid."""

    ran: int = 0
    started: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])
    problems: list[str] = field(default_factory=list[str])


class _NullLink:
    """The engine's side of a job context, without an engine."""

    stop_reason = None

    def report(self, **said: object) -> None:
        pass

    def add_successor(self, job: object) -> None:
        raise AssertionError("commands have no successors")


class Commands:
    """Runs random commands; the same seed gives the same commands."""

    def __init__(self, *, runs: int, seed: int, folder: Path) -> None:
        self._runs = runs
        self._random = random.Random(seed)
        self._folder = folder
        self._mark = f"storm-{os.getpid()}-{seed}"
        self._scratch = folder / "scratch"
        self._environment = RunEnvironment(
            lambda: "HOST",
            7,
            SYSTEM_CLOCK,
            None,
            lambda kind, value: NewJob(kind=kind, queue="default"),  # type: ignore[arg-type]
        )
        command = Command(
            sys.executable,
            [str(PROGRAM), "{act}", "{file}"],
            {"act": Choice(BEHAVIOURS), "file": Text()},
            env={"STORM_MARK": self._mark},
        )
        self._handler = CmdExecHandler(commands={"program": command}, grace_s=0.1)

    async def run(self) -> CommandReport:
        """Run all commands, a few in parallel, then search for leftovers."""
        report = CommandReport()
        self._scratch.mkdir()
        before = tempfile.tempdir
        tempfile.tempdir = str(self._scratch)
        try:
            semaphore = asyncio.Semaphore(MAX_PARALLEL)
            plans = [self._plan() for _ in range(self._runs)]
            await asyncio.gather(*(self._run_one(semaphore, report, *plan) for plan in plans))
        finally:
            tempfile.tempdir = before
        pids = self._folder / "pids"
        report.started = len(pids.read_bytes().splitlines()) if pids.exists() else 0
        report.problems += self._find_leftovers()
        return report

    def _plan(self) -> tuple[str, str, float]:
        if SURVIVORS_ARE_SEEN:
            behaviour = self._random.choice(BEHAVIOURS)
        else:
            behaviour = self._random.choice(
                ["quick", "family", "ignores-sigterm", "exits-on-sigterm"]
            )
        end = self._random.choice(["timeout", "cancel", "cancel", "twice"])
        return behaviour, end, self._random.uniform(0.0, 0.4)

    async def _run_one(
        self,
        semaphore: asyncio.Semaphore,
        report: CommandReport,
        behaviour: str,
        end: str,
        after_s: float,
    ) -> None:
        async with semaphore:
            info = JobInfo("ID", "cmd_exec", "q", 1, 5, to_datetime(SYSTEM_CLOCK.now()), ())
            payload = {
                "command": "program",
                "args": {"act": behaviour, "file": str(self._folder / "pids")},
                "timeout_secs": 1 if end == "timeout" else 60,
            }
            ctx = Context(info, _NullLink(), self._environment)
            running = asyncio.create_task(self._handler.run(ctx, payload))
            if end != "timeout":
                await asyncio.sleep(after_s)
                running.cancel()
                if end == "twice":
                    await asyncio.sleep(after_s / 8)
                    running.cancel()
            try:
                outcome = await running
                report.ends[type(outcome).__name__] += 1
            except asyncio.CancelledError:
                report.ends["cancelled"] += 1
            report.ran += 1

    def _find_leftovers(self) -> list[str]:
        problems = [
            f"survivor: {process.pid} {process.info['cmdline']}"
            for process in psutil.process_iter(["cmdline"])
            if self._is_marked(process)
        ]
        this_process = psutil.Process()
        for child in this_process.children(recursive=True):
            try:
                # A server that other tests share has its own children and reaps them itself.
                if child.status() == psutil.STATUS_ZOMBIE and child.ppid() == this_process.pid:
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
