"""Parent and child of a fork each make connections, threads and locks of their own."""

import asyncio
import os
import warnings
from pathlib import Path

import pytest

from forge_jobs.backends.sqlite.os.database_file import DatabaseFile
from forge_jobs.backends.sqlite.os.liveness_file import probe
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.job import NewJob
from forge_jobs.store.processes import NewProcess

A_JOB = NewJob(kind="k", queue="q")


def in_child(work: "object") -> int:
    """Run something in a forked child; its exit code."""
    with warnings.catch_warnings():
        # Forking with threads is what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()  # type: ignore[operator]
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.processes
def test_a_child_writes_and_reads_on_its_own(path: Path) -> None:
    store = SqliteStore(path)
    parent = asyncio.new_event_loop()
    parent.run_until_complete(store.open())
    parent.run_until_complete(store.jobs.enqueue([A_JOB]))
    assert parent.run_until_complete(store.metrics.counts())

    def child() -> None:
        assert store._writer.connection is None  # type: ignore[reportPrivateUsage]
        store.enqueue_sync([A_JOB])

        async def more() -> None:
            await store.jobs.enqueue([A_JOB])
            assert sum(count.jobs for count in await store.metrics.counts()) == 3
            await store.close()

        asyncio.run(more())

    assert in_child(child) == 0
    assert store._writer.connection is None  # type: ignore[reportPrivateUsage]
    store.enqueue_sync([A_JOB])
    counts = parent.run_until_complete(store.metrics.counts())
    assert sum(count.jobs for count in counts) == 4
    parent.run_until_complete(store.close())
    parent.close()


@pytest.mark.processes
def test_a_child_that_exits_leaves_its_parent_registered(path: Path) -> None:
    store = SqliteStore(path)
    parent = asyncio.new_event_loop()
    parent.run_until_complete(store.open())
    parent.run_until_complete(
        store.processes.register(
            NewProcess(host_id="h", label="h", queues=("q",), pid=1, hostname="here")
        )
    )
    assert in_child(lambda: None) == 0
    assert in_child(store.after_fork) == 0
    assert probe(DatabaseFile.at(path), "h") is not None
    assert len(parent.run_until_complete(store.processes.all())) == 1
    parent.run_until_complete(store.close())
    assert probe(DatabaseFile.at(path), "h") is None
    parent.close()
