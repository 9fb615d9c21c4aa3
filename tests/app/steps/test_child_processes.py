"""Steps of handlers in child processes: ``cpu=True``, and coroutines that run alone."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from forge_jobs import BadStep
from forge_jobs.engine.running.executors.child_steps import ChildSteps
from forge_jobs.engine.running.executors.child_wire import StartRun, Target

APP = """
import asyncio, os, sqlite3, sys, threading
from pathlib import Path
from forge_jobs import BadStep, Context, EngineSettings, Forge, JobStatus, Retry

HERE = Path(__file__).parent
forge = Forge(f"sqlite:///{HERE}/jobs.db")

class Declined(Exception):
    pass

def note(text: str) -> str:
    with open(HERE / "effects", "a") as file:
        file.write(text + "\\n")
    return text

def decline() -> None:
    note("decline")
    raise Declined("no", 3)

@forge.task(cpu=True, max_attempts=3, retry=Retry(base="10ms"))
def work(ctx: Context) -> list:
    values = [ctx.step_sync("note", note, name) for name in "ab"]
    try:
        ctx.step_sync.using(errors=(Declined,))("decline", decline)
    except Declined as error:
        values.append(error.args[1])
    ctx.sleep_sync("100ms")
    values.append(ctx.wait_for_sync("go", type=int))
    if not (HERE / "failed").exists():
        (HERE / "failed").touch()
        raise RuntimeError("again")
    try:
        ctx.step_sync("nested", lambda: ctx.step_sync("inner", note, "inner"))
    except BadStep as error:
        values.append("do not nest" in str(error))
    return [*values, ctx.steps, os.getpid()]

@forge.task(cpu=True)
def restarting(n: int, ctx: Context) -> int:
    ctx.step_sync(note, f"restart {n}")
    if n < 2:
        raise ctx.restart(n + 1)
    return n

def debit(connection: sqlite3.Connection) -> int:
    connection.execute("INSERT INTO debits VALUES (1)")
    return 1

@forge.task(cpu=True)
def paying(ctx: Context) -> int:
    connection = sqlite3.connect(HERE / "jobs.db", timeout=30)
    with connection:
        value = ctx.step_sync.using(tx=connection)("debit", debit, connection)
    connection.close()
    return value + ctx.step_sync("after", abs, -1)

def refused(ctx: Context) -> str:
    try:
        ctx.step_sync("late", abs, 1)
    except BadStep as error:
        return str(error).partition(":")[0]
    return "accepted"

@forge.task(cpu=True)
def threaded(ctx: Context) -> list:
    ctx.step_sync("first", abs, 1)
    said = []
    thread = threading.Thread(target=lambda: said.append(refused(ctx)))
    thread.start()
    thread.join(30)
    return [*said, ctx.steps]

@forge.task
async def alone(ctx: Context) -> list:
    async def nap() -> None:
        await ctx.sleep("50ms")

    _, value = await asyncio.gather(nap(), ctx.step("note", note, "alone"))
    return [value, os.getpid()]

async def main() -> None:
    await forge.aready()
    connection = sqlite3.connect(HERE / "jobs.db")
    connection.execute("CREATE TABLE debits (n)")
    connection.commit()
    # Every crash isolates: the first run of `alone` is one after a crash of its worker.
    settings = EngineSettings(isolate_after_crashes=0)
    async with forge.worker(queues=["default"], settings=settings):
        job = await work.aenqueue()
        while (await job.arefresh()).status is not JobStatus.SUSPENDED:
            await asyncio.sleep(0.01)
        await job.asend("go", 7)
        *values, pid = await job.aresult(timeout=60)
        print(values, pid != os.getpid())
        print(await (await restarting.aenqueue(1)).aresult(timeout=60))
        print(await (await paying.aenqueue()).aresult(timeout=60))
        print(await (await threaded.aenqueue()).aresult(timeout=60))
        value, pid = await (await alone.aenqueue()).aresult(timeout=60)
        print(value, pid != os.getpid())
    await forge.aclose()
    print(sorted((HERE / "effects").read_text().split("\\n")))
    print(connection.execute("SELECT count(*) FROM debits").fetchone())

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.processes
def test_steps_of_child_processes(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(textwrap.dedent(APP))
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "['a', 'b', 3, 7, True, 5] True",
        "2",
        "2",
        "['the steps of a run belong to one thread', 1]",
        "alone True",
        "['', 'a', 'alone', 'b', 'decline', 'restart 1', 'restart 2']",
        "(1,)",
    ], done.stderr


def test_a_context_of_an_ended_run_sends_nothing_to_the_worker() -> None:
    """Its child runs the next job by then: the answer would never come."""
    sent: list[bytes] = []
    start = StartRun(
        number=1, target=Target("app", None, "w"), host_id="h", store_tag=1, id="01J", kind="w",
        queue="q", payload=b"{}", attempts=1, max_attempts=1, enqueued_at=1,
    )  # fmt: skip
    port = ChildSteps(start, sent.append, lambda: pytest.fail("no answer"), None, lambda: True)
    with pytest.raises(BadStep, match="the run of job 01J has ended"):
        port.check_caller()
    assert sent == []
