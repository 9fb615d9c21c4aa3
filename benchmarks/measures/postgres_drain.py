"""Draining no-op jobs on Postgres: a seeded queue, one worker process, until the last is finished.

Ours: `async def` tasks, 100 slots, the whole engine with metrics, finished rows kept; the clock
stops when the last finish is committed. Peers are counted when their last handler is called, and
get as few jobs as a few seconds take them. PgQueuer is judged at the best of its batch sizes. The
ceiling is bare SQL that keeps what we keep, on one connection, 500 jobs a statement, in the same
round.
"""

from __future__ import annotations

from benchmarks import postgres, targets
from benchmarks.bench import Bench, in_turn
from benchmarks.figures import Figure, Outcome, Series, ratio
from benchmarks.measures.draining import Contender, begin, check_load, check_rows, seed
from benchmarks.processes import AgentError
from benchmarks.systems import OURS_POSTGRES, RAW, forge_postgres_rows

SECONDS = 60.0
LEVEL = "postgres"
OWN = "ours"
CEILING = "raw SQL"


def contenders(bench: Bench) -> list[Contender]:
    """Everybody, with as many jobs as take some seconds."""
    jobs = bench.size.jobs
    fast, slow = jobs(20_000, 400), jobs(1_500, 60)
    everyone = [
        Contender(OWN, OURS_POSTGRES, LEVEL, jobs(60_000, 500), True),
        Contender(CEILING, RAW, LEVEL, jobs(60_000, 500), True, {}, {"batch": 500}),
        *(
            Contender(f"pgqueuer, {batch}", "pgqueuer", LEVEL, fast, True, {}, {"batch": batch})
            for batch in ((500,) if bench.size.quick else (100, 500, 1_000))
        ),
        Contender("procrastinate", "procrastinate", LEVEL, slow, True),
        Contender("saq", "saq", LEVEL, slow, True),
        Contender("chancy", "chancy", LEVEL, slow, True),
    ]
    return everyone[:3] if bench.size.quick else everyone


class PostgresDrain:
    name = "postgres-drain"
    title = "Postgres: drain of no-op jobs, one worker process"

    def __init__(self) -> None:
        self._contenders: dict[str, Contender] = {}
        self._problems: list[str] = []

    def setup(self, bench: Bench) -> None:
        self._contenders = {one.label: one for one in contenders(bench) if bench.has(one.system)}

    def round(self, bench: Bench, number: int) -> list[Figure]:
        figures = list[Figure]()
        for label in in_turn(list(self._contenders), number):
            try:
                figures += drain_once(bench, self._contenders[label], self._problems)
            except (AgentError, TimeoutError) as failure:
                # A peer that breaks must not hide the others.
                self._problems.append(f"{label}: round {number + 1}: {failure}")
        return figures

    def verify(self, bench: Bench) -> list[str]:
        return self._problems

    def judge(self, series: Series) -> list[Outcome]:
        own, ceiling = series.median(OWN, "jobs/s"), series.median(CEILING, "jobs/s")
        peers = sorted({system for system, _ in series.values} - {OWN, CEILING})
        share = None if own is None or ceiling is None else own / ceiling * 100
        note = "" if ceiling is None else f"{own or 0:,.0f}/s of {ceiling:,.0f}/s"
        return [
            ratio(targets.POSTGRES_DRAIN, own, series.best(peers, "jobs/s")),
            Outcome(targets.POSTGRES_CEILING, share, note),
            _server_time(series),
        ]


def _server_time(series: Series) -> Outcome:
    """Processor time of the server per job: it is what a whole cluster shares."""
    others = {
        label: series.median(label, "server cpu")
        for label in (CEILING, *sorted({system for system, _ in series.values} - {OWN, CEILING}))
    }
    note = ", ".join(f"{label} {cpu:.1f}" for label, cpu in others.items() if cpu is not None)
    return Outcome(targets.POSTGRES_SERVER, series.median(OWN, "server cpu"), note)


def drain_once(bench: Bench, contender: Contender, problems: list[str]) -> list[Figure]:
    """Seed, settle, drain, check the rows; jobs per second and processor time per job."""
    with bench.database() as store:
        with bench.agent(contender.system, store, LEVEL, source=contender.source) as producer:
            seeded = seed(producer, contender, SECONDS)
        if contender.load is not None:
            check_load(contender, "seeded", forge_postgres_rows.state(store), problems)
        postgres.prepare_tables(store)
        with bench.agent(
            contender.system,
            store,
            LEVEL,
            environment=contender.environment,
            source=contender.source,
        ) as worker:
            up = begin(worker, contender, seeded, SECONDS)
            if contender.system == OURS_POSTGRES:
                worker.event("handled", SECONDS)
                ended = forge_postgres_rows.await_finished(store, SECONDS)
                done = worker.answer(SECONDS)
                done["seconds"] = ended - up["at"]
            else:
                done = worker.answer(SECONDS)
            level = worker.ask("durability")["synchronous_commit"]
        bench.say(f"{contender.system}: synchronous_commit {level} (on its own connection)")
        if contender.system == OURS_POSTGRES:
            check_rows(contender, forge_postgres_rows.counts(store), problems)
            check_load(contender, "ended", forge_postgres_rows.state(store), problems)
            wrong = forge_postgres_rows.discord(store)
            problems += [f"{contender.label}: {one}" for one in wrong]
        else:
            with bench.agent(contender.system, store, LEVEL) as reader:
                check_rows(contender, reader.ask("rows"), problems)
    return [
        Figure(contender.label, "jobs/s", done["jobs"] / done["seconds"], "/s"),
        Figure(contender.label, "cpu", done["cpu"] / done["jobs"] * 1e6, "µs/job"),
        Figure(contender.label, "server cpu", done["server"] / done["jobs"] * 1e6, "µs/job"),
    ]
