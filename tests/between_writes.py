"""Stopping a process while it is not in the middle of a write.

A process that is stopped inside a transaction keeps others from what it has locked: on SQLite from
every write. That is not what these tests are about.
"""

import asyncio
import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg

from forge_jobs.backends.postgres.connection import address

_INSIDE = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'forge-jobs' "
    "AND state IN ('active', 'idle in transaction') AND position($1 IN query) > 0"
)


def stop(pid: int, url: str) -> None:
    """SIGSTOP a process at a moment when it does not write to this store."""
    watch = _sqlite if url.startswith("sqlite:") else _postgres
    with watch(url) as is_writing:
        for _ in range(500):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.02)
            if not is_writing():
                return
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.02)
    raise AssertionError("the process is always in the middle of a write")


@contextmanager
def _sqlite(url: str) -> Iterator[Callable[[], bool]]:
    """Whether a process holds the fair lock."""
    database = url.removeprefix("sqlite:///")
    turn = os.open(Path(f"{database}-forge") / "turn-b.lock", os.O_RDWR)

    def is_writing() -> bool:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(turn, fcntl.LOCK_UN)
        return False

    try:
        yield is_writing
    finally:
        os.close(turn)


@contextmanager
def _postgres(url: str) -> Iterator[Callable[[], bool]]:
    """Whether any session of ours is inside a transaction in this schema. Other tests of this
    process use the same server."""
    parsed = address.parse(url)

    async def inside() -> int:
        connection = await asyncpg.connect(parsed.dsn)
        try:
            return await connection.fetchval(_INSIDE, parsed.schema)
        finally:
            await connection.close()

    def is_writing() -> bool:
        # The caller may be inside a loop of its own.
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(asyncio.run(inside())))
        thread.start()
        thread.join()
        return found != [0]

    yield is_writing
