"""Django on Postgres: blocks of `atomic()` with one task each, with the commit."""

from __future__ import annotations

from benchmarks import targets
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Outcome, Series
from benchmarks.measures.django_rounds import DjangoRounds
from benchmarks.systems.django_project import OWN, DjangoProject


class DjangoEnqueue(DjangoRounds):
    name = "django-enqueue"
    title = "Django: one task in each block of atomic()"

    def measure(self, bench: Bench, project: DjangoProject) -> list[Figure]:
        told = project.call("enqueue", bench.size.jobs(500, 10))
        return [Figure(project.backend.label, "block", told["milliseconds"], "ms")]

    def judge(self, series: Series) -> list[Outcome]:
        own = series.median(OWN, "block")
        others = {one: series.median(one, "block") for one in self.peers(series)}
        found = {one: value for one, value in others.items() if value is not None}
        if own is None or not found:
            return [Outcome(targets.DJANGO_ENQUEUE, None, "")]
        best = min(found, key=lambda one: found[one])
        note = f"{own:.2f} ms to {best} {found[best]:.2f} ms"
        return [Outcome(targets.DJANGO_ENQUEUE, own / found[best], note)]
