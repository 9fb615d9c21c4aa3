"""R1 for the gateway's own tables: no connection to their file is open during a fork."""

import asyncio
import os
import signal
import sqlite3
import threading
import warnings
from contextlib import closing
from pathlib import Path

import pytest

from telegram_gateway.storage.sqlite import SqliteGatewayStore


@pytest.mark.processes
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="shows descriptors on Linux only")
async def test_r1_the_gateways_connections_are_not_inherited_by_a_fork(tmp_path: Path) -> None:
    file = tmp_path / "bots.db"
    with closing(sqlite3.connect(file)) as made:
        made.execute("PRAGMA journal_mode = WAL").fetchone()
    storage = SqliteGatewayStore(str(file))
    await storage.open()
    await storage.quarantine("a", 1, b"1", reason="", size=1)
    assert is_open(file)
    with warnings.catch_warnings():
        # Forking with threads is what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(60)
        code = 1
        try:
            code = 2 if is_open(file) else write(storage)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    await storage.quarantine("a", 3, b"3", reason="", size=1)
    await storage.close()
    with closing(sqlite3.connect(file)) as found:
        assert found.execute("SELECT count(*) FROM gateway_quarantined").fetchone() == (3,)
        assert found.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def is_open(file: Path) -> bool:
    numbers = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return any(str(file) in os.readlink(number) for number in numbers if os.path.islink(number))


def write(storage: SqliteGatewayStore) -> int:
    # The parent's event loop runs on this thread, so a new loop needs another thread.
    def run() -> None:
        asyncio.run(storage.quarantine("a", 2, b"2", reason="", size=1))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return 0
