"""What the measures of Django have in common: the backends, a fresh project for each, judging."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.bench import Bench, in_turn
from benchmarks.figures import Figure, Series
from benchmarks.processes import AgentError
from benchmarks.systems import OURS_POSTGRES
from benchmarks.systems.django_project import BACKENDS, OWN, Backend, DjangoProject, interpreter


class DjangoRounds:
    """The base of these measures: each round runs every backend in turn."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._python: Path | None = None
        self._backends: dict[str, Backend] = {}

    def setup(self, bench: Bench) -> None:
        """Find the interpreter; without one nothing is measured."""
        self._python = interpreter(quick=bench.size.quick)
        chosen = [one for one in BACKENDS if one.label != OWN or bench.has(OURS_POSTGRES)]
        if bench.systems <= {OURS_POSTGRES, "forge", "raw-sql", "raw-steps", "gateway"}:
            chosen = [one for one in chosen if one.label == OWN]
        if bench.size.quick:
            chosen = chosen[:2]
        self._backends = {one.label: one for one in chosen}
        if self._python is None:
            bench.say("Django: no environment with the newest Django here, nothing measured")
            self._backends = {}

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures: list[Figure] = []
        for label in in_turn(list(self._backends), number):
            try:
                with self.project(bench, self._backends[label]) as project:
                    figures += self.measure(bench, project)
            except (AgentError, TimeoutError) as failure:
                self._problems.append(f"{label}: round {number + 1}: {failure}")
        return figures

    def measure(self, bench: Bench, project: DjangoProject) -> list[Figure]:
        """The figures of one backend."""
        raise NotImplementedError

    @contextmanager
    def project(self, bench: Bench, backend: Backend) -> Iterator[DjangoProject]:
        """The project on a fresh database with the tables of a backend."""
        assert self._python is not None
        with bench.database() as store:
            made = DjangoProject(self._python, backend, store)
            made.migrate()
            yield made

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    @staticmethod
    def peers(series: Series) -> list[str]:
        """The backends beside ours that were measured."""
        return sorted({system for system, _ in series.values} - {OWN})
