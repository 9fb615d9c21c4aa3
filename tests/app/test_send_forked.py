"""``forge.send`` around ``os.fork``: parents, children and their children send to one job each."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, sys, warnings
from forge_jobs import Context, Forge, JobStatus

warnings.simplefilter("ignore", DeprecationWarning)
forge = Forge(sys.argv[1])
JOBS = 12

@forge.task(max_attempts=1)
async def waiting(n: int, ctx: Context) -> list:
    return [await ctx.wait_for("go", key=n, type=int), await ctx.wait_for("go", key=n, type=int)]

def send(n: int) -> None:
    forge.send("go", n, key=n, dedupe_key=f"{n}")
    # A repetition in another process is the same event.
    if n % 2:
        in_child(lambda: forge.send("go", -1, key=n, dedupe_key=f"{n}"))

def in_child(call) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            call()
        except BaseException as error:
            print("in a child:", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

jobs = [waiting.enqueue(n) for n in range(JOBS)]
asyncio.run(forge.drain())
assert {job.refresh().status for job in jobs} == {JobStatus.SUSPENDED}
for n in range(JOBS):
    if n % 3 == 0:
        send(n)
    else:
        in_child(lambda: send(n))
    # Between two forks the parent goes on with its own connections.
    forge.send("go", 100 + n, key=n)
asyncio.run(forge.drain())
print([job.result(timeout=30) for job in jobs] == [[n, 100 + n] for n in range(JOBS)])
forge.close()
"""


@pytest.mark.processes
def test_forked_processes_send_as_their_parents_do(project_root: Path, shared_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, shared_url],
        cwd=project_root,
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "True\n", done.stdout + done.stderr
