"""A workflow with 1,000 stored steps goes on, on Postgres: the time to its next step.

From the moment at which a worker asks the store for what turns out to be that workflow, to the
first line of the step after the stored ones: it holds the claim, the read of the history and the
replay. Ours and absurd end a short durable sleep, again and again, in a worker that has nothing
else to do. DBOS keeps sleeping workflows in memory and has a history to read only after the end of
a process, so each of its samples is a new process that recovers the workflow of the one before.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import targets
from benchmarks.bench import Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series
from benchmarks.systems import OURS_POSTGRES

LEVEL = "postgres"
OWN = "ours"
ABSURD, DBOS = "absurd", "dbos"
SYSTEMS = {OWN: OURS_POSTGRES, ABSURD: "absurd", DBOS: "dbos"}
SECONDS = 120.0


class PostgresStepResume:
    name = "postgres-step-resume"
    title = "Postgres: a workflow with 1,000 stored steps goes on"

    def __init__(self) -> None:
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        """Nothing to prepare: each round opens fresh databases."""

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures = list[Figure]()
        few = (OWN,) if bench.size.quick else SYSTEMS
        for label in in_turn([one for one in few if bench.has(SYSTEMS[one])], number):
            with bench.database() as store:
                samples = self._samples(bench, label, store)
            figures += [Figure(label, "resume", value, "ms") for value in samples]
        return figures

    def _samples(self, bench: Bench, label: str, store: Path) -> list[float]:
        steps = bench.size.jobs(1_000, 20)
        times = bench.size.jobs(2 if label == DBOS else 10, 2)
        samples = list[float]()
        if label == DBOS:
            with bench.agent(DBOS, store, LEVEL) as first:
                first.ask("interrupt", SECONDS, checkpoints=steps)
            for _ in range(times):
                with bench.agent(DBOS, store, LEVEL) as next_process:
                    samples += next_process.ask("resume", SECONDS)["resumed"]
        else:
            with bench.agent(SYSTEMS[label], store, LEVEL) as worker:
                told = worker.ask("resume", SECONDS, checkpoints=steps, times=times)
            samples += told["resumed"]
        if len(samples) != times:
            self._problems.append(f"{label}: {len(samples)} of {times} resumes were seen")
        return samples

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        own = series.median(OWN, "resume")
        dbos, absurd = series.median(DBOS, "resume"), series.median(ABSURD, "resume")
        faster = None if own is None or dbos is None else dbos / own
        slower = None if own is None or absurd is None else own / absurd
        said = "" if own is None else f"{own:.1f} ms to "
        return [
            Outcome(
                targets.POSTGRES_RESUME_DBOS,
                faster,
                "" if dbos is None else f"{said}{dbos:,.0f} ms",
            ),
            Outcome(
                targets.POSTGRES_RESUME_ABSURD,
                slower,
                "" if absurd is None else f"{said}{absurd:,.1f} ms",
            ),
        ]
