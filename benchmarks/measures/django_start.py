"""Django on Postgres: from enqueue to start on an idle worker, p50 of one task at a time."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import targets
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Outcome, Series
from benchmarks.measures.django_rounds import DjangoRounds
from benchmarks.systems.django_project import OWN, DjangoProject

SECONDS = 60.0


class DjangoStart(DjangoRounds):
    name = "django-start"
    title = "Django: enqueue to start, idle worker, other process"

    def measure(self, bench: Bench, project: DjangoProject) -> list[Figure]:
        calls = bench.size.jobs(30, 3)
        with tempfile.TemporaryDirectory() as folder, project.working():
            ready, stamps = Path(folder) / "ready", Path(folder) / "stamps"
            project.call("trickle", 1, ready)
            _arrivals(ready, 1)
            project.call("trickle", calls, stamps)
            milliseconds = _arrivals(stamps, calls)
        return [Figure(project.backend.label, "p50", statistics.median(milliseconds), "ms")]

    def judge(self, series: Series) -> list[Outcome]:
        own = series.median(OWN, "p50")
        others = ((one, series.median(one, "p50")) for one in self.peers(series))
        note = ", ".join(f"{one} {value:.0f} ms" for one, value in others if value is not None)
        return [Outcome(targets.DJANGO_START, own, note)]


def _arrivals(path: Path, wanted: int) -> list[float]:
    """The lines of a file, once there are so many."""
    begun = time.monotonic()
    while time.monotonic() - begun < SECONDS:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= wanted:
            return [float(line) for line in lines]
        time.sleep(0.02)
    raise TimeoutError(f"fewer than {wanted} tasks started within {SECONDS:.0f} s")
