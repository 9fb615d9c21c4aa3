"""A closed scope and a full key do not churn their backlog: what an exchange does is the same,
however many jobs wait behind them."""

from pathlib import Path
from typing import Any

import pytest

from forge_jobs.backends.sqlite.io.transaction import Tx
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.job import NewJob
from forge_jobs.core.limits import Declared, key_bucket
from forge_jobs.core.outcome import Throttled
from forge_jobs.store.jobs import Want
from forge_jobs.testing.clock import MovableClock
from forge_jobs.testing.conformance.worker import Process


class Statements:
    """Every statement that a transaction executes, as text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def writes(self) -> list[str]:
        return [text for text in self.texts if not text.lstrip().startswith(("SELECT", "WITH"))]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    seen = Statements()
    made = Tx.__init__

    def spying(self: Tx, execute: Any, *rest: Any, **more: Any) -> None:
        def told(statement: str, *values: Any) -> Any:
            seen.texts.append(statement)
            return execute(statement, *values)

        made(self, told, *rest, **more)

    monkeypatch.setattr(Tx, "__init__", spying)
    return seen


async def _closed(folder: Path, backlog: int, statements: Statements) -> tuple[int, int]:
    """Statements and writes of ten exchanges while a scope is closed."""
    clock = MovableClock()
    store = SqliteStore(folder / f"{backlog}.db", clock=clock)
    await store.open()
    await store.limits.publish([Declared(name="task:send", scopes=("smtp",))])
    worker = await Process.register(store, clock)
    waiting = NewJob(kind="send", queue="q", track=True)
    await store.jobs.enqueue([waiting] * (backlog + 1))
    await worker.finish(await worker.claim_one(), Throttled(retry_after=60, scope="smtp"))
    statements.texts.clear()
    for _ in range(10):
        assert (await worker.exchange(want=[Want("q", 50)])).claims == []
    await store.close()
    return len(statements.texts), len(statements.writes())


async def test_a_closed_scope(tmp_path: Path, statements: Statements) -> None:
    few, many = [await _closed(tmp_path, backlog, statements) for backlog in (10, 5_000)]
    assert few == many
    assert many[1] == 0, statements.writes()
    assert many[0] <= 10 * 8


async def _full(folder: Path, backlog: int, statements: Statements) -> tuple[int, int]:
    """The same while a key is full, and for the exchange that makes room."""
    clock = MovableClock()
    store = SqliteStore(folder / f"{backlog}.db", clock=clock)
    await store.open()
    await store.limits.publish([Declared(name="task:fetch", concurrency=1, per="args.host")])
    worker = await Process.register(store, clock)
    waiting = NewJob(kind="fetch", queue="q", limit_key=key_bucket("fetch", "a"))
    await store.jobs.enqueue([waiting] * (backlog + 1))
    job = await worker.claim_one()
    statements.texts.clear()
    for _ in range(10):
        assert (await worker.exchange(want=[Want("q", 50)])).claims == []
    assert statements.writes() == []
    answer = await worker.exchange(finish=[worker.build_finish(job)], want=[Want("q", 50)])
    assert len(answer.claims) == 1
    await store.close()
    return len(statements.texts), len(statements.writes())


async def test_a_full_key(tmp_path: Path, statements: Statements) -> None:
    few, many = [await _full(tmp_path, backlog, statements) for backlog in (10, 5_000)]
    assert few == many
    assert many[1] <= 12, statements.writes()
