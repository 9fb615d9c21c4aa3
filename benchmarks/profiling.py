"""Where our own time goes: `python -m benchmarks --profile drain` (or enqueue, await, def, steps).

Two passes over the same work in a child process, both from the moment the worker is up. First a
sampler that is woken by the processor time the process has spent, not by the wall clock, and
weighs each sample by what the main thread has spent since the last one: a call into SQLite counts
for what it cost, waiting counts for nothing. Then cProfile, whose counts of calls are right and
whose times are not: it makes small functions look dear. Figures of a profiled run are no benchmark.
"""

from __future__ import annotations

import cProfile
import io
import pstats
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from benchmarks.bench import OURS, Size, open_bench, prepare_database
from benchmarks.processes import start_child
from benchmarks.systems import load
from benchmarks.systems.forge_loads import LOADS

LEVEL = "normal"
# What is called, how often, and what is seeded for it. A call of `steps` is a step.
PROFILED: dict[str, tuple[str, int, dict[str, str]]] = {
    "drain": ("drain", 50_000, {"kind": "noop"}),
    "def": ("drain", 50_000, {"kind": "noop_def"}),
    "await": ("drain", 20_000, {"kind": "wait"}),
    "enqueue": ("enqueue", 20_000, {}),
    "steps": ("drain", 1_000, {"load": "steps"}),
}
SAMPLE_SECONDS = 0.001
TOP = 30
CHILD_SECONDS = 120


class Profiler(Protocol):
    """What the child does around the work."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def report(self, jobs: int) -> str: ...


class Sampler:
    """Adds up the main thread's processor time by the function on top and by all on the stack."""

    def __init__(self) -> None:
        self._top: Counter[str] = Counter()
        self._anywhere: Counter[str] = Counter()
        self._process = self._main = self._last = 0.0
        self._samples = 0

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._sample)
        self._process, self._main = time.process_time(), time.thread_time()
        self._last = self._main
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        self._process = time.process_time() - self._process
        self._main = time.thread_time() - self._main

    def _sample(self, _: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        spent, self._last = now - self._last, now
        self._samples += 1
        if frame is not None:
            self._top[frame_name(frame)] += spent
        seen: set[str] = set()
        while frame is not None:
            seen.add(frame_name(frame))
            frame = frame.f_back
        for where in seen:
            self._anywhere[where] += spent

    def report(self, jobs: int) -> str:
        lines = [
            f"main thread {self._main / jobs * 1e6:.1f} µs of CPU per job, other threads"
            f" {(self._process - self._main) / jobs * 1e6:.1f}; {self._samples} samples;"
            " µs per job:",
            "   self   total  function",
        ]
        for where, spent in self._top.most_common(TOP):
            total = self._anywhere[where]
            lines.append(f"{spent / jobs * 1e6:7.2f} {total / jobs * 1e6:7.2f}  {where}")
        return "\n".join(lines)


class Tracer:
    """cProfile of the main thread."""

    def __init__(self) -> None:
        self._profile = cProfile.Profile()

    def start(self) -> None:
        self._profile.enable()

    def stop(self) -> None:
        self._profile.disable()

    def report(self, jobs: int) -> str:
        buffer = io.StringIO()
        statistics = pstats.Stats(self._profile, stream=buffer)
        statistics.strip_dirs().sort_stats("tottime").print_stats(TOP)
        return buffer.getvalue()


PROFILERS: dict[str, Callable[[], Profiler]] = {"sample": Sampler, "trace": Tracer}


def frame_name(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename)
    return f"{'/'.join(path.parts[-2:])}:{frame.f_code.co_qualname}"


def profile(name: str) -> int:
    """Seed in one child, then profile in two more; print both views."""
    verb, jobs, seeded = PROFILED[name]
    load_name = seeded.get("load", "")
    calls = LOADS[load_name].calls(jobs) if load_name else jobs
    with open_bench(Size(1, quick=False)) as bench:
        if not bench.has(OURS):
            print("Forge Jobs cannot be imported here; run `make setup` first.", file=sys.stderr)
            return 2
        for how in PROFILERS:
            with bench.store() as store:
                if verb == "drain":
                    with bench.agent(OURS, store, LEVEL) as producer:
                        producer.ask("seed", jobs=jobs, **seeded)
                    prepare_database(store)
                child = start_child(
                    ["benchmarks.profiling", str(store), verb, str(calls), how, load_name],
                    bench.home / "profile.log",
                    {},
                )
                out, _ = child.process.communicate(timeout=CHILD_SECONDS)
                print(out.decode() or child.last_words(30))
                if child.process.returncode:
                    return 1
    return 0


def profiled(store: str, verb: str, jobs: int, how: str, load_name: str) -> None:
    """The child: run the work under one of the two profilers."""
    profiler = PROFILERS[how]()
    system: Any = load(OURS)(Path(store), LEVEL, lambda *_, **__: profiler.start())
    if verb == "enqueue":
        system.enqueue(jobs=100)
        profiler.start()
    started = time.monotonic()
    getattr(system, verb)(jobs=jobs, **({"load": load_name} if load_name else {}))
    profiler.stop()
    seconds = time.monotonic() - started
    print(f"{verb} of {jobs:,} jobs at {LEVEL.upper()}, {how}: {seconds:.2f} s with start and stop")
    print(profiler.report(jobs))
    system.close()


if __name__ == "__main__":
    profiled(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
