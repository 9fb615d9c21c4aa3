"""What child processes of the tests run: a script that takes a function name and its arguments."""

import asyncio
import sys
import time
from collections import Counter

from forge_jobs.backends.sqlite.os.fair_lock import FairLock
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.decide import done
from forge_jobs.core.job import ClaimedJob, NewJob
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.store.jobs import Exchange, Want
from forge_jobs.store.processes import NewProcess


def report(*words: object) -> None:
    print(*words, flush=True)


def new_process(host_id: str, lease_s: float = 15.0) -> NewProcess:
    return NewProcess(
        host_id=host_id, label=host_id, queues=("q",), pid=0, hostname="test", lease_s=lease_s
    )


async def hammer(path: str, name: str, seconds: str) -> None:
    """Enqueue in every way and work through whatever is there, as fast as possible."""
    store = SqliteStore(path)
    await store.open()
    key = await store.processes.register(new_process(name))
    held: list[ClaimedJob] = []
    counts, number, until = Counter[str](), 0, time.monotonic() + float(seconds)
    while time.monotonic() < until:
        number += 1
        store.enqueue_sync([NewJob(kind="single", queue="q")])
        await store.jobs.enqueue([NewJob(kind="some", queue="q") for _ in range(number % 20)])
        counts["enqueued"] += 1 + number % 20
        ends = [done(job, result=None) for job in held]
        want = [Want("q", 15, 5)]
        answer = await store.jobs.exchange(
            Exchange(owner=key, number=number, finish=ends, want=want)
        )
        counts.update(f"verdict {verdict}" for verdict in answer.verdicts)
        held = list(answer.claims)
    await store.jobs.exchange(
        Exchange(owner=key, number=number + 1, finish=[done(job, result=None) for job in held])
    )
    counts["verdict applied"] += len(held)
    await store.processes.deregister(key)
    await store.close()
    report(*(f"{word.replace(' ', '-')}={count}" for word, count in counts.items()))


def dedupe(path: str, tries: str) -> None:
    """Try to enqueue one and the same key many times."""
    store = SqliteStore(path)
    fresh = 0
    for _ in range(int(tries)):
        (answer,) = store.enqueue_sync([NewJob(kind="once", queue="q", dedupe_key="the-key")])
        fresh += not answer.duplicate
    report(fresh)


def enqueue_many(path: str, times: str) -> None:
    """Enqueue one by one; reports how many, and how long the longest took."""
    store, longest = SqliteStore(path), 0.0
    for _ in range(int(times)):
        began = time.monotonic()
        store.enqueue_sync([NewJob(kind="other", queue="q")])
        longest = max(longest, time.monotonic() - began)
        time.sleep(0.001)
    report(times, longest)


async def open_only(path: str) -> None:
    """Open at the same moment as many others."""
    store = SqliteStore(path)
    sys.stdin.readline()
    await store.open()
    store.enqueue_sync([NewJob(kind="k", queue="q")])
    await store.close()
    report(store.tag)


def take_turns(directory: str, seconds: str) -> None:
    """Acquire the fair lock again and again; reports how often, and the longest wait."""
    fair_lock = FairLock(directory, SYSTEM_CLOCK)
    fair_lock.open()
    sys.stdin.readline()
    count, longest, until = 0, 0.0, time.monotonic() + float(seconds)
    while (began := time.monotonic()) < until:
        fair_lock.acquire()
        longest = max(longest, time.monotonic() - began)
        time.sleep(0.001)
        fair_lock.release()
        count += 1
    report(count, longest)


def hold_fair_lock(directory: str) -> None:
    """Acquire the fair lock and keep it."""
    fair_lock = FairLock(directory, SYSTEM_CLOCK)
    fair_lock.open()
    fair_lock.acquire()
    report("mine")
    sys.stdin.readline()


def enqueue(path: str, queue: str) -> None:
    """One job per line of input, until the input ends."""
    store = SqliteStore(path)
    store.enqueue_sync([NewJob(kind="k", queue="another")])
    report("ready")
    for _ in sys.stdin:
        store.enqueue_sync([NewJob(kind="k", queue=queue)])
        report("sent")


async def work(path: str, host_id: str, lease_s: str) -> None:
    """Register, claim what is there, and hold it for ever."""
    store = SqliteStore(path)
    await store.open()
    key = await store.processes.register(new_process(host_id, float(lease_s)))
    answer = await store.jobs.exchange(Exchange(owner=key, number=1, want=[Want("q", 10)]))
    report(key, len(answer.claims))
    await asyncio.sleep(3600)


async def lock(path: str) -> None:
    """Hold the database as a program does that knows nothing of this library."""
    import sqlite3

    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    report("locked")
    sys.stdin.readline()
    connection.execute("COMMIT")
    connection.close()
    report("free")


async def fill(path: str, room: str) -> None:
    """Enqueue on a disk that has room for so many bytes per file."""
    import resource
    import signal

    from forge_jobs.core.errors import StoreError

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqliteStore(path)
    await store.open()
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(room), int(room)))
    stored = 0
    try:
        while stored < 100_000:
            store.enqueue_sync([NewJob(kind="k", queue="q", payload=b'"' + b"x" * 1000 + b'"')])
            stored += 1
    except StoreError as error:
        report(stored, type(error).__name__)


_ALL = (
    hammer, dedupe, enqueue_many, open_only, take_turns, hold_fair_lock, enqueue, work, lock, fill,
)  # fmt: skip
PARTS = {part.__name__: part for part in _ALL}

if __name__ == "__main__":
    answer = PARTS[sys.argv[1]](*sys.argv[2:])
    if answer is not None:
        asyncio.run(answer)
