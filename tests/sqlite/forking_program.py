"""A program that forks while it uses a Forge, in the ways programs do; test_r1_fork.py runs it.

``python forking_program.py way order file notes``: every process writes down, in the directory
``notes``, the ids of jobs that were accepted, and that it ended. ``order`` is
"first" or "last": whether the parent closes before or after its children.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from forge_jobs import Forge

SCENARIO, ORDER, FILE = sys.argv[1:4]
NOTES = Path(sys.argv[4])
STUCK_S = 40
CHILDREN = 3

forge = Forge(f"sqlite:///{FILE}?synchronous=normal")


@forge.task
def work(n: int, text: str = "") -> None: ...


def accept(n: int, text: str = "") -> None:
    """Enqueue, and write down what was accepted."""
    note(work.enqueue(n, text).id)


def note(job_id: str) -> None:
    with (NOTES / f"ids-{os.getpid()}-{threading.get_ident()}").open("a") as notes:
        notes.write(f"{job_id}\n")


def signal_event(name: str) -> None:
    (NOTES / name).touch()


def wait_event(name: str, *, timeout_s: float = STUCK_S) -> None:
    until = time.monotonic() + timeout_s
    while not (NOTES / name).exists():
        assert time.monotonic() < until, f"{name} did not happen"
        time.sleep(0.002)


def fork(child: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        run_child(child)
    return pid


def run_child(child: Callable[[], None]) -> None:
    """Run a child process, which ends itself if it hangs."""
    signal.alarm(STUCK_S)
    try:
        child()
        signal_event(f"done-{os.getpid()}")
    except BaseException as error:
        print(f"child: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(0)


def produce(up: str) -> None:
    """What a child does: some jobs before its parent closes, some after it."""
    for n in range(10):
        accept(n)
    signal_event(up)
    if ORDER == "first":
        wait_event("parent closed")
    for n in range(10):
        accept(n)

    async def more() -> None:
        note((await work.aenqueue(99)).id)

    asyncio.run(more())
    assert forge.job(work.enqueue(0).id).refresh() is not None
    forge.close()


def end(ups: list[str], pids: list[int]) -> None:
    """The parent closes before its children end, or after it."""
    for up in ups:
        wait_event(up)
    if ORDER == "first":
        forge.close()
        signal_event("parent closed")
    for pid in pids:
        os.waitpid(pid, 0)
    if ORDER == "last":
        accept(1)
        forge.close()


def daemon() -> None:
    """Double fork: the child ends at once, the grandchild is the program from then on."""
    accept(1)

    def detach() -> None:
        os.setsid()
        fork(lambda: produce("up"))
        os._exit(0)

    pid = os.fork()
    if pid == 0:
        detach()
    os.waitpid(pid, 0)
    wait_event("up")
    if ORDER == "first":
        # Not closed: the interpreter's end does it.
        threading.Timer(0.5, signal_event, ["parent closed"]).start()
        return
    end([], [])


def preload() -> None:
    """A server that loads the application once and forks its workers."""
    accept(1)
    names = [f"up-{n}" for n in range(CHILDREN)]
    pids = [fork(lambda name=name: produce(name)) for name in names]
    accept(2)
    end(names, pids)


def multiprocess() -> None:
    accept(1)
    context = multiprocessing.get_context("fork")
    names = [f"up-{n}" for n in range(CHILDREN)]
    children = [
        context.Process(target=run_child, args=(lambda name=name: produce(name),)) for name in names
    ]
    for child in children:
        child.start()
    accept(2)
    end(names, [])
    for child in children:
        child.join()


def in_handler() -> None:
    """The handler of a job forks; a worker runs in this process."""
    pids: list[int] = []

    @forge.task
    def plain(n: int) -> None:
        pids.append(fork(lambda: produce(f"up-plain-{n}")))

    @forge.task
    async def on_the_loop(n: int) -> None:
        pids.append(fork(lambda: produce(f"up-loop-{n}")))

    async def run() -> None:
        async with forge.worker(queues=["default"]):
            jobs = [await task.aenqueue(n) for n in range(2) for task in (plain, on_the_loop)]
            for n in range(20):
                note((await work.aenqueue(n)).id)
            for job in jobs:
                note(job.id)
                await job.aresult(timeout=STUCK_S)
            # Another one after the forks, in the same worker.
            await (await work.aenqueue(1)).aresult(timeout=STUCK_S)

    asyncio.run(run())
    end([f"up-{kind}-{n}" for kind in ("plain", "loop") for n in range(2)], pids)


def busy() -> None:
    """Other threads enqueue all the time, synchronously and on event loops."""
    stop = threading.Event()

    def enqueue() -> None:
        while not stop.is_set():
            accept(3)

    async def aenqueue() -> None:
        while not stop.is_set():
            note((await work.aenqueue(4)).id)

    with_threads(
        stop,
        [enqueue, enqueue, enqueue, lambda: asyncio.run(aenqueue())],
        lambda: [fork(lambda n=n: produce(f"up-{n}")) for n in range(2 * CHILDREN)],
    )


def storm() -> None:
    """Other threads open and close stores, list, checkpoint, and start threads that enqueue."""
    stop = threading.Event()

    def opens() -> None:
        while not stop.is_set():
            other = Forge(f"sqlite:///{FILE}?synchronous=normal")
            note(other.enqueue("work", {"n": 5}).id)
            other.close()

    async def queries() -> None:
        store = await forge.client.access.aready()
        while not stop.is_set():
            await store.metrics.counts()

    def fills() -> None:
        # A write-ahead log of 4 MB is checkpointed.
        while not stop.is_set():
            accept(6, "x" * 500_000)
            time.sleep(0.005)

    def starts() -> None:
        while not stop.is_set():
            thread = threading.Thread(target=accept, args=(7,))
            thread.start()
            thread.join()

    with_threads(
        stop,
        [opens, lambda: asyncio.run(queries()), fills, starts],
        lambda: [fork(lambda n=n: produce(f"up-{n}")) for n in range(2 * CHILDREN)],
    )


def with_threads(
    stop: threading.Event, loops: list[Callable[[], None]], start: Callable[[], list[int]]
) -> None:
    accept(1)
    threads = [threading.Thread(target=loop) for loop in loops]
    for thread in threads:
        thread.start()
    pids = start()
    stop.set()
    for thread in threads:
        thread.join()
    end([f"up-{n}" for n in range(len(pids))], pids)


def stranger() -> None:
    """Not part of the family: opens, enqueues and closes all the time."""
    while not (NOTES / "stop").exists():
        with Forge(f"sqlite:///{FILE}?synchronous=normal") as other:
            for _ in range(10):
                note(other.enqueue("work", {"n": 1}).id)
    signal_event("stranger done")


SCENARIOS: dict[str, Callable[[], None]] = {
    "daemon": daemon,
    "preload": preload,
    "multiprocessing": multiprocess,
    "handler": in_handler,
    "busy": busy,
    "storm": storm,
    "stranger": stranger,
}

if __name__ == "__main__":
    # Forking with threads is the point here.
    warnings.simplefilter("ignore", DeprecationWarning)
    SCENARIOS[SCENARIO]()
