"""Random walks over each store, compared with an independent model after every step.

The model (``model.py``, ``limit_buckets.py``, ``exchanges.py``) shares no code with the stores.
Without further settings the same examples run each time. ``TEST_MODEL_EXAMPLES=500`` runs that
many random examples on each store instead::

    TEST_MODEL_EXAMPLES=500 .venv/bin/python -m pytest tests/model -k sqlite

(``tests/conftest.py`` removes variables whose names begin with ``FORGE_``.)
"""

import asyncio
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock
from tests.postgres.schemas import Schemas

from .machine import StoreFactory
from .operators import WholeMachine
from .shorten import shortened

ASKED = int(os.environ.get("TEST_MODEL_EXAMPLES", "0"))
STEPS = 50

pytestmark = [pytest.mark.slow, pytest.mark.timeout(0 if ASKED else 300)]


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


def walk(factory: StoreFactory, examples: int) -> None:
    """Run the machine on stores of one factory; a failed walk is shortened."""
    machine: type[WholeMachine] = type("Machine", (WholeMachine,), {"factory": factory})
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=ASKED or examples,
                derandomize=not ASKED,
                stateful_step_count=STEPS,
                deadline=None,
                phases=(Phase.generate,),
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except Exception as error:
        steps, found = shortened(machine, factory.steps)
        if found is None:
            raise
        shown = "\n".join(f"{step.name} {step.given}" for step in steps)
        raise AssertionError(f"{found}\n\nafter these steps:\n{shown}") from error


def test_memory(runner: asyncio.Runner) -> None:
    walk(StoreFactory(runner, lambda clock: MemoryStore(clock, SeededEntropy(7))), 600)


def test_sqlite(runner: asyncio.Runner, tmp_path: Path) -> None:
    numbers = itertools.count()

    def make(clock: MovableClock) -> Store:
        path = tmp_path / f"{next(numbers)}.db"
        return SqliteStore(path, clock=clock, entropy=SeededEntropy(7))

    walk(StoreFactory(runner, make), 350)


def test_postgres(runner: asyncio.Runner, schemas: Schemas) -> None:
    taken: list[str] = []

    def make(clock: MovableClock) -> Store:
        taken.append(schemas.take())
        return PostgresStore(schemas.url(taken[-1]), clock, SeededEntropy(7))

    def clean() -> None:
        schemas.give_back(taken.pop())

    walk(StoreFactory(runner, make, clean), 150)
