"""Exceptions from signal handlers inside ``forge.send`` and inside steps: each has happened whole
or not at all, no event and no effect of a transaction is lost or doubled, and later calls work."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import Context, EngineSettings, Forge, Retry
from forge_jobs.engine.steps import run_steps
from tests.interrupting import Interrupt, Late, Tracing, raised_at, sweep
from tests.user_transaction import user_transaction

# An interrupt between the call of a coroutine function and the coroutine's first line.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")

_NEVER = 10**9
SETTINGS = EngineSettings(shutdown_s=10.0)


@pytest.fixture
def shared(shared_url: str) -> Iterator[Forge]:
    made = Forge(shared_url, settings=SETTINGS)
    yield made
    made.close()


# ----------------------------------------------------------------------------------- forge.send


@pytest.mark.parametrize("error", [Interrupt, Late])
def test_an_interrupted_send_is_whole_and_its_repetition_the_same_event(
    shared: Forge, error: type[BaseException]
) -> None:
    shared.ready()
    number = 0

    def send() -> None:
        nonlocal number
        number += 1
        shared.send("go", number, key=number, dedupe_key=str(number))

    def check(tracing: Tracing) -> None:
        shared.send("go", number, key=number, dedupe_key=str(number))
        stored = len(_events(shared, number))
        assert stored == 1, f"{stored} events after an interrupt in {tracing.where}"

    assert sweep(send, check, error=error, max_points=40) > 20


def _events(forge: Forge, key: int) -> list[Any]:
    access = forge.client.access
    return list(access.run(lambda store: store.events.page(name="go", key=str(key), limit=5)))


async def test_interrupted_sends_wake_every_waiting_job_once(shared: Forge) -> None:
    """The sender is a thread that repeats what was interrupted, under the same dedupe key."""
    seen: list[int] = []

    @shared.task(max_attempts=1)
    async def waiting(n: int, ctx: Context) -> int:
        value = await ctx.wait_for("go", key=n, timeout="5m", type=int)
        seen.append(n)
        return value

    def send_all(count: int) -> int:
        points = raised_at(_NEVER, lambda: shared.send("probe", 0)).counted
        interrupted = 0
        for n in range(count):
            key = {"key": n, "dedupe_key": f"go-{n}"}
            point = points * n // count
            interrupted += raised_at(point, lambda n=n, key=key: shared.send("go", n, **key)).raised
            shared.send("go", n, **key)
        return interrupted

    async with shared, shared.worker(queues=["default"]):
        jobs = [await waiting.aenqueue(n) for n in range(20)]
        assert await asyncio.to_thread(send_all, 20) > 10
        assert [await job.aresult(timeout=60) for job in jobs] == list(range(20))
    assert sorted(seen) == list(range(20))


# ---------------------------------------------------------------------------------------- steps


async def test_an_interrupted_step_in_a_transaction_happens_once(
    shared: Forge, shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler rolls back, and calls the step again in the same run. Either the run goes on, or
    it is told to end and the next one does."""
    monkeypatch.setattr(run_steps, "_COMMIT_S", 1.0)
    count = 24
    interrupted: list[str] = []
    points: list[int] = []

    def write(connection: Any, n: int) -> int:
        connection.execute(f"INSERT INTO debits VALUES ({n})")
        return n

    @shared.task(max_attempts=5, retry=Retry(base="10ms"))
    def debit(n: int, ctx: Context) -> list[int]:
        if ctx.job.attempts == 1:
            with user_transaction(shared_url) as mine:
                step = ctx.step_sync.using(tx=mine, key="once")
                point = _NEVER if n < 0 else points[0] * n // count
                tracing = raised_at(point, lambda: step("debit", write, mine, n))
                mine.rollback()
            if n < 0:
                points.append(tracing.counted)
                raise RuntimeError("counted")
            if tracing.raised:
                interrupted.append(tracing.where)
        with user_transaction(shared_url) as mine:
            value = ctx.step_sync.using(tx=mine, key="once")("debit", write, mine, n)
        return [value, ctx.step_sync("after", abs, n)]

    async with shared:
        with user_transaction(shared_url) as mine:
            mine.execute("CREATE TABLE debits (n integer)")
        async with shared.worker(queues={"default": 12}):
            assert await (await debit.aenqueue(-1)).aresult(timeout=60) == [-1, 1]
            jobs = [await debit.aenqueue(n) for n in range(count)]
            results = [await job.aresult(timeout=120) for job in jobs]
    assert results == [[n, n] for n in range(count)]
    assert len(interrupted) > count // 2, interrupted
    with user_transaction(shared_url) as mine:
        rows = mine.execute("SELECT n FROM debits ORDER BY n").fetchall()
    assert [n for (n,) in rows] == [-1, *range(count)]


class Calls:
    """One call under a name of its own, interrupted at each of its points in turn."""

    def __init__(self, every: int) -> None:
        self._every = every
        self.where: list[str] = []

    def all(self, call: Callable[[str], Any]) -> list[str]:
        """The names of the interrupted calls."""
        names: list[str] = []
        while True:
            name = f"n{len(names)}"
            tracing = raised_at(self._every * len(names), lambda name=name: call(name))
            if not tracing.raised:
                return names
            self.where.append(tracing.where)
            names.append(name)


async def test_an_interrupted_step_can_be_called_again_or_left_out(forge: Forge) -> None:
    """At whatever point: its name is free, the steps after it get their own values, and none of
    them counts as open when the handler returns."""
    calls = Calls(every=5)

    @forge.task(max_attempts=1)
    def again(ctx: Context) -> list[str]:
        def step(name: str) -> str:
            return ctx.step_sync(name, str.upper, name)

        return [step(name) for name in calls.all(step)]

    @forge.task(max_attempts=1)
    def left_out(ctx: Context) -> str:
        calls.all(lambda name: ctx.step_sync(name, str.upper, name))
        calls.all(lambda name: ctx.sleep_sync("0s", name=name))
        calls.all(lambda name: ctx.wait_for_sync("never", timeout=0, default=0, name=f"w{name}"))
        return ctx.step_sync("last", str.upper, "last")

    async with forge, forge.worker(queues=["default"]):
        values = await (await again.aenqueue()).aresult(timeout=60)
        assert await (await left_out.aenqueue()).aresult(timeout=60) == "LAST"
    assert values == [f"N{n}" for n in range(len(values))]
    assert len(values) > 10, calls.where


# ------------------------------------------------------------------------------ child processes

CHILD = """
import asyncio, sqlite3, sys
from pathlib import Path
from forge_jobs import Context, Forge
from forge_jobs.engine.steps import run_steps
from tests.interrupting import Late, alarm

HERE = Path(__file__).parent
forge = Forge(f"sqlite:///{HERE}/jobs.db")

def answer(name: str) -> str:
    return name.upper()

@forge.task(cpu=True, max_attempts=1)
def work(ctx: Context) -> list:
    interrupted, wrong = 0, []
    with alarm(Late) as in_seconds:
        for number in range(100):
            name = f"n{number}"
            try:
                in_seconds(0.000_1 * (number % 40 + 1))
                ctx.step_sync(name, answer, name)
                in_seconds(0)
            except Late:
                interrupted += 1
            # The next step asks first; then the one that was interrupted.
            for wanted in (f"next-{name}", name):
                value = ctx.step_sync(wanted, answer, wanted)
                if value != wanted.upper():
                    wrong.append((wanted, value))
    return [interrupted, wrong]

async def main() -> None:
    async with forge, forge.worker(queues=["default"]):
        count, wrong = await (await work.aenqueue()).aresult(timeout=60)
        print(count > 10, wrong)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.processes
def test_an_interrupted_step_of_a_child_takes_no_other_steps_answer(
    project_root: Path, tmp_path: Path
) -> None:
    """The answer that nobody waits for any more comes before that of the next question."""
    (tmp_path / "app.py").write_text(CHILD)
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(project_root)},
    )
    assert done.stdout.splitlines() == ["True []"], done.stdout + done.stderr
