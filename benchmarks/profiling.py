"""Where our own time goes: `python -m benchmarks --profile drain` (or enqueue, await, def).

Two passes over the same work in a child process. First a sampler looks at every thread about
once a millisecond, which shows the loop and the writer thread side by side at little cost; then
cProfile follows the calls of the thread that runs the loop. Figures of a profiled run are no
benchmark.
"""

from __future__ import annotations

import cProfile
import io
import pstats
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.bench import OURS, Size, open_bench, settle
from benchmarks.processes import start_child
from benchmarks.systems import load

JOBS = 30_000
PROFILED = {
    "drain": ("drain", "noop"),
    "def": ("drain", "noop_def"),
    "await": ("drain", "wait"),
    "enqueue": ("enqueue", "noop"),
}
SAMPLE_SECONDS = 0.001
TOP = 25


class Sampler:
    """Counts, per thread, which function is on top and which are anywhere on the stack."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler", daemon=True)
        self._top: dict[str, Counter[str]] = {}
        self._anywhere: dict[str, Counter[str]] = {}
        self._samples: Counter[str] = Counter()

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            for ident, frame in sys._current_frames().items():
                if ident != threading.get_ident():
                    self._count(names.get(ident, "?"), frame)

    def _count(self, thread: str, frame: FrameType | None) -> None:
        self._samples[thread] += 1
        tops = self._top.setdefault(thread, Counter())
        anywhere = self._anywhere.setdefault(thread, Counter())
        if frame is not None:
            tops[place(frame)] += 1
        seen: set[str] = set()
        while frame is not None:
            seen.add(place(frame))
            frame = frame.f_back
        anywhere.update(seen)

    def report(self) -> str:
        lines = list[str]()
        for thread, samples in self._samples.most_common(4):
            lines += ["", f"thread {thread}: {samples} samples", "   self    total  function"]
            for where, count in self._top[thread].most_common(TOP):
                total = self._anywhere[thread][where]
                lines.append(f"{count / samples:7.1%} {total / samples:8.1%}  {where}")
        return "\n".join(lines)


def place(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename)
    return f"{'/'.join(path.parts[-2:])}:{frame.f_code.co_qualname}"


def profile(name: str) -> int:
    """Seed in one child, then profile in two more; print both views."""
    verb, kind = PROFILED[name]
    with open_bench(Size(1, quick=False)) as bench:
        if not bench.has(OURS):
            print("Forge Jobs cannot be imported here; run `make setup` first.", file=sys.stderr)
            return 2
        for how in ("sample", "trace"):
            with bench.store() as store:
                if verb == "drain":
                    with bench.agent(OURS, store, "full") as producer:
                        producer.ask("seed", jobs=JOBS, kind=kind)
                    settle(store)
                arguments = ["benchmarks.profiling", str(store), verb, kind, how]
                child = start_child(arguments, bench.home / "profile.log", {})
                out, _ = child.process.communicate(timeout=180)
                print(out.decode() or child.last_words(30))
    return 0


def profiled(store: str, verb: str, kind: str, how: str) -> None:
    """The child: run the work under one of the two profilers."""
    system: Any = load(OURS)(Path(store), "full", lambda *_, **__: None)
    jobs = JOBS if verb == "drain" else JOBS // 10
    options = {"kind": kind} if verb == "drain" else {}
    action: Callable[..., Any] = getattr(system, verb)
    started = time.monotonic()
    if how == "sample":
        with Sampler() as sampler:
            action(jobs=jobs, **options)
        text = sampler.report()
    else:
        tracer = cProfile.Profile()
        tracer.runcall(action, jobs=jobs, **options)
        buffer = io.StringIO()
        statistics = pstats.Stats(tracer, stream=buffer)
        statistics.strip_dirs().sort_stats("tottime").print_stats(TOP)
        text = buffer.getvalue()
    seconds = time.monotonic() - started
    print(f"{verb} of {jobs:,} {kind} jobs, {how}: {seconds:.2f} s including start and stop")
    print(text)


if __name__ == "__main__":
    profiled(*sys.argv[1:5])
