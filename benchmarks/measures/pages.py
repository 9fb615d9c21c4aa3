"""Mission Control over 1,000,000 jobs: how long pages take, and what they cost others.

Every page is visited with every tab, range and filter, also those that match nothing or only the
oldest jobs, and the slowest counts. Then a worker drains no-op jobs from the same store with 20
pages open in another process and without, in alternating windows; the ratio of each pair counts,
with a 90 % interval. An open page is watched for a job that was just stored: the time is that from
the commit to its sight on the stream, over a socket. At last 50 streams are open while nothing
happens, and the serving process is asked what that cost it. Ours alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from benchmarks import postgres, targets
from benchmarks.bench import OURS, Bench, prepare_database, truncate_log
from benchmarks.figures import Figure, Outcome, Series, Target, paired, percentile
from benchmarks.processes import Agent, start_child
from benchmarks.systems import OURS_POSTGRES, crowd
from benchmarks.systems.forge_pages import OPEN

WITH, WITHOUT = "20 pages open", "no page open"
RATIO = "ratio to none"
SERVER, SIGHT, IDLE = "server", "each", "idle"
SKIP = 1_000
SLACK = 2_000
STREAMS = 50
SECONDS = 120.0


class Pages:
    name = "pages"
    title = "Mission Control over 1,000,000 jobs"
    system = OURS
    level = "default"
    busy_jobs = 60_000
    slowest: Target = targets.PAGES
    busy: Target = targets.PAGES_BUSY
    sight: Target = targets.PAGES_SIGHT
    idle: Target = targets.PAGES_IDLE

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._store: Path | None = None

    def setup(self, bench: Bench) -> None:
        """A store with its tables, filled inside the database."""
        if not bench.has(self.system):
            return
        rows, minutes = bench.size.jobs(1_000_000, 3_000), bench.size.jobs(10_080, 60)
        store = self._stack.enter_context(self.place(bench))
        started = time.monotonic()
        with bench.agent(self.system, store, self.level) as agent:
            agent.ask("prepare")
        self.fill(store, rows, minutes)
        self._store = store
        bench.say(f"{self.name}: {rows:,} jobs made in {time.monotonic() - started:.0f} s")

    def place(self, bench: Bench) -> AbstractContextManager[Path]:
        return bench.store()

    def fill(self, store: Path, rows: int, minutes: int) -> None:
        crowd.fill_sqlite(store, rows, minutes)
        prepare_database(store)

    def rest(self, store: Path) -> None:
        """The same before every window."""
        truncate_log(store)

    def round(self, bench: Bench, number: int) -> list[Figure]:
        if self._store is None:
            return []
        figures = self._visits(bench, self._store) if number == 0 else []
        with bench.agent(self.system, self._store, self.level) as panel:
            address = panel.ask("open_pages")["address"]
            if number == 0:
                figures += self._sights(bench, self._store, address)
                figures += self._idle(bench, panel, address)
            for pair in range(bench.size.pairs_a_round()):
                speed: dict[str, float] = {}
                order = (WITH, WITHOUT)
                for side in order if (number + pair) % 2 == 0 else order[::-1]:
                    speed[side] = self._window(
                        bench, self._store, address if side == WITH else None
                    )
                    figures.append(Figure(side, "jobs/s", speed[side], "/s"))
                figures.append(Figure(WITH, RATIO, speed[WITH] / speed[WITHOUT], "×"))
            panel.ask("close_pages")
        return figures

    def _visits(self, bench: Bench, store: Path) -> list[Figure]:
        with bench.agent(self.system, store, self.level) as agent:
            times, every = bench.size.jobs(3, 1), bench.size.jobs(1, 20)
            took = agent.ask("visit", SECONDS, times=times, every=every)["took"]
        return [
            Figure(page, SERVER, statistics.median(spans), "ms") for page, spans in took.items()
        ]

    def _sights(self, bench: Bench, store: Path, address: str) -> list[Figure]:
        with bench.agent(self.system, store, self.level) as agent:
            samples = bench.size.jobs(60, 2)
            took = agent.ask("changes", SECONDS, address=address, samples=samples)["took"]
        return [Figure("open page", SIGHT, span, "s") for span in took]

    def _idle(self, bench: Bench, panel: Agent, address: str) -> list[Figure]:
        pages = [OPEN[place % len(OPEN)] for place in range(STREAMS)]
        with onlookers(bench, address, pages):
            time.sleep(bench.size.jobs(15, 1))
            before, at = panel.ask("spent")["cpu"], time.monotonic()
            time.sleep(bench.size.jobs(20, 1))
            spent = panel.ask("spent")["cpu"] - before
        return [Figure(f"{STREAMS} streams", IDLE, spent / (time.monotonic() - at) * 100, "%")]

    def _window(self, bench: Bench, store: Path, address: str | None) -> float:
        """Jobs per second of one worker."""
        jobs = bench.size.jobs(self.busy_jobs, 300)
        with bench.agent(self.system, store, self.level) as producer:
            producer.ask("seed", SECONDS, jobs=SKIP + jobs + SLACK)
        self.rest(store)
        with ExitStack() as stack:
            if address is not None:
                stack.enter_context(onlookers(bench, address, list(OPEN)))
            worker = stack.enter_context(bench.agent(self.system, store, self.level))
            worker.send("drain", jobs=jobs, skip=SKIP)
            worker.event("up", SECONDS)
            if self.system == OURS_POSTGRES:
                worker.event("handled", SECONDS)
            return jobs / worker.answer(SECONDS)["span"]

    def verify(self, bench: Bench) -> list[str]:
        self._stack.close()
        return []

    def judge(self, series: Series) -> list[Outcome]:
        times = {
            page: values[0] for (page, name), values in series.values.items() if name == SERVER
        }
        slowest = max(times, key=lambda page: times[page], default=None)
        sights, idle = series.of("open page", SIGHT), series.of(f"{STREAMS} streams", IDLE)
        speeds = [series.median(side, "jobs/s") for side in (WITH, WITHOUT)]
        note = " to ".join(f"{speed:,.0f}/s" for speed in speeds if speed is not None)
        seen = f"p50 {statistics.median(sights):.2f} s of {len(sights)}" if sights else ""
        return [
            Outcome(
                self.slowest,
                None if slowest is None else times[slowest],
                "" if slowest is None else f"{slowest}, the slowest of {len(times)}",
            ),
            paired(self.busy, series.of(WITH, RATIO), f"{note} without"),
            Outcome(self.sight, percentile(sights, 0.99) if sights else None, seen),
            Outcome(self.idle, idle[0] if idle else None),
        ]


class PostgresPages(Pages):
    name = "postgres-pages"
    title = "Postgres: Mission Control over 1,000,000 jobs"
    system = OURS_POSTGRES
    level = "postgres"
    busy_jobs = 30_000
    slowest = targets.POSTGRES_PAGES
    busy = targets.POSTGRES_PAGES_BUSY
    sight = targets.POSTGRES_PAGES_SIGHT
    idle = targets.POSTGRES_PAGES_IDLE

    def place(self, bench: Bench) -> AbstractContextManager[Path]:
        return bench.database()

    def fill(self, store: Path, rows: int, minutes: int) -> None:
        crowd.fill_postgres(store, rows, minutes)
        postgres.prepare_database(store)

    def rest(self, store: Path) -> None:
        postgres.prepare_database(store)


@contextmanager
def onlookers(bench: Bench, address: str, pages: list[str]) -> Iterator[None]:
    """A process with a window on each of these pages."""
    arguments = ["benchmarks.page_readers", address, *pages]
    child = start_child(arguments, bench.home / "onlookers.log", {})
    agent = Agent(child, "onlookers")
    try:
        agent.event("open", SECONDS)
        yield
    finally:
        agent.close()
