"""Faults around the processes of a storm: clocks that are wrong and step, and on Postgres old
snapshots with an ANALYZE beside them."""

import random
from collections.abc import Sequence
from pathlib import Path

import psycopg

from rigs.storms.databases import Database
from rigs.storms.history import now
from rigs.storms.rig import Actor
from tests.clocks.wrong_clock import WrongClock

# Less than half of the hour for which producers deduplicate.
MAX_STEP_S = 900
_CLOCK_EVERY_S = 1.5
_SNAPSHOT_S = 3.0
_TABLES = ("jobs", "history", "processes", "counter_entries")


class Clocks:
    """Wrong clocks that step. On Postgres each process has its own; processes on one SQLite file
    share one, as processes of one machine do."""

    def __init__(
        self, folder: Path, actors: Sequence[Actor], rng: random.Random, *, shared: bool
    ) -> None:
        self._rng = rng
        self._clocks: list[WrongClock] = []
        self._next_at = now()
        self.steps = 0
        for number, actor in enumerate(actors):
            if not self._clocks or not shared:
                place = folder / f"clock-{number}"
                place.mkdir()
                self._clocks.append(WrongClock(place))
            actor.environment = {**actor.environment, **self._clocks[-1].environment}
        for clock in self._clocks:
            clock.set(rng.randint(-MAX_STEP_S, MAX_STEP_S))

    def act(self) -> None:
        """Step one clock forward or back, if it is time."""
        if now() >= self._next_at:
            self._next_at = now() + self._rng.uniform(0, 2 * _CLOCK_EVERY_S)
            self._rng.choice(self._clocks).set(self._rng.randint(-MAX_STEP_S, MAX_STEP_S))
            self.steps += 1


class OldSnapshots:
    """Holds a snapshot for some seconds and analyzes the tables meanwhile, again and again: the
    statistics then count dead rows that no vacuum may remove."""

    def __init__(self, database: Database) -> None:
        self._url = database.url
        self._reader: psycopg.Connection | None = None
        self._until = 0.0
        self.analyzed = 0

    def act(self) -> None:
        """Begin, or analyze and end, if it is time."""
        try:
            if self._reader is None:
                self._reader = psycopg.connect(self._url)
                self._reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                self._reader.execute("SELECT count(*) FROM forge.jobs")
                self._until = now() + _SNAPSHOT_S
            elif now() >= self._until:
                with psycopg.connect(self._url, autocommit=True) as other:
                    for table in _TABLES:
                        other.execute(f"ANALYZE forge.{table}".encode())
                self.analyzed += 1
                self.close()
        except psycopg.Error:
            # The tables are not there yet, or the server is down.
            self.close()

    def close(self) -> None:
        """End the snapshot."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
