"""Django on Postgres: 10,000 no-op tasks, one worker, from its first progress to the last task.

Finished means finished in the database, for djhuey taken from it. The clock starts when fewer tasks
are left than were seeded, so the start of the worker does not count.
"""

from __future__ import annotations

import time

from benchmarks import targets
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Outcome, Series, ratio
from benchmarks.measures.django_rounds import DjangoRounds
from benchmarks.systems.django_project import OWN, DjangoProject

SECONDS = 180.0
LOOK_S = 0.02


class DjangoDrain(DjangoRounds):
    name = "django-drain"
    title = "Django: drain of no-op tasks, one worker, 16 slots"

    def measure(self, bench: Bench, project: DjangoProject) -> list[Figure]:
        jobs = bench.size.jobs(10_000, 60)
        project.call("seed", jobs)
        with project.working():
            begun = first = time.monotonic()
            left_first = left = jobs
            while left:
                if time.monotonic() - begun > SECONDS:
                    raise TimeoutError(f"{left} of {jobs} tasks left after {SECONDS:.0f} s")
                time.sleep(LOOK_S)
                left = project.unfinished()
                if left_first == jobs:
                    first, left_first = time.monotonic(), left
            ended = time.monotonic()
        # All in one look: of a smoke run.
        counted, seconds = (left_first, ended - first) if left_first else (jobs, ended - begun)
        return [Figure(project.backend.label, "jobs/s", counted / seconds, "/s")]

    def judge(self, series: Series) -> list[Outcome]:
        best = series.best(self.peers(series), "jobs/s")
        return [ratio(targets.DJANGO_DRAIN, series.median(OWN, "jobs/s"), best)]
