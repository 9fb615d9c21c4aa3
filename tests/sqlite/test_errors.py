"""Bad paths, full disks, damaged and foreign files: a clear error, and nothing lost."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from forge_jobs.backends.sqlite.os.database_file import file_system, is_network
from forge_jobs.backends.sqlite.schema import COMPATIBLE, WANTED
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.errors import (
    Closed,
    Corrupt,
    Full,
    NotWritable,
    SchemaMismatch,
    StoreReplaced,
    Unavailable,
)
from forge_jobs.core.job import NewJob
from forge_jobs.store.jobs import Exchange
from forge_jobs.store.processes import NewProcess
from forge_jobs.store.store import SchemaStatus, Severity
from tests.sqlite.conftest import Start, ended

A_JOB = NewJob(kind="k", queue="q")
LARGE = NewJob(kind="k", queue="q", payload=b'"' + b"x" * 50_000 + b'"')


async def jobs_in(store: SqliteStore) -> int:
    return sum(count.jobs for count in await store.metrics.counts())


async def test_a_full_database_refuses_a_job_and_loses_none(store: SqliteStore) -> None:
    store.enqueue_sync([A_JOB])
    connection: sqlite3.Connection = store._writer.connection  # type: ignore
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    with pytest.raises(Full, match="no room left"):
        store.enqueue_sync([LARGE])
    with pytest.raises(Full):
        await store.jobs.enqueue([A_JOB, LARGE])
    assert await jobs_in(store) == 1
    await store.jobs.enqueue([A_JOB])
    connection.execute("PRAGMA max_page_count = 1000000")
    store.enqueue_sync([LARGE])
    assert await jobs_in(store) == 3


@pytest.mark.processes
async def test_a_file_that_may_not_grow(path: Path, start: Start) -> None:
    stored, error = ended(start("fill", path, 1 << 20)).split()
    assert int(stored) > 10
    assert error in ("Full", "Unknown", "Unavailable")
    store = SqliteStore(path)
    await store.open()
    assert int(stored) <= await jobs_in(store) <= int(stored) + 1
    store.enqueue_sync([A_JOB])
    await store.close()


async def test_a_newer_schema_is_refused(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO forge_schema VALUES (98, 'additive', 0, 0)")
    for migrate in (True, False):
        await store.open(migrate=migrate)
        await store.jobs.enqueue([A_JOB])
        await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO forge_schema VALUES (99, 'breaking', 0, 1)")
    connection.close()
    for migrate in (True, False):
        with pytest.raises(SchemaMismatch, match=r"version 99.* upgrade forge-jobs"):
            await SqliteStore(path).open(migrate=migrate)
    with pytest.raises(SchemaMismatch):
        SqliteStore(path).enqueue_sync([A_JOB])


async def test_without_migrate_a_schema_must_be_there(path: Path) -> None:
    with pytest.raises(Unavailable, match="forge db create"):
        await SqliteStore(path).open(migrate=False)
    sqlite3.connect(path).close()
    path.touch()
    with pytest.raises(SchemaMismatch, match="forge db migrate"):
        await SqliteStore(path).open(migrate=False)
    store = SqliteStore(path)
    assert await store.maintenance.schema_status() == SchemaStatus(None, WANTED)
    assert await store.maintenance.migrate() == SchemaStatus(WANTED, WANTED, COMPATIBLE)
    await store.open(migrate=False)
    await store.close()


async def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_bytes(b"certainly not a database " * 500)
    with pytest.raises(Corrupt, match="not a database"):
        await SqliteStore(path).open()
    findings = await SqliteStore(path).maintenance.examine()
    assert Severity.ERROR in [finding.severity for finding in findings]


async def test_a_damaged_database(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.jobs.enqueue([A_JOB] * 500)
    await store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (os.stat(path).st_size - 4096))
    broken = SqliteStore(path)
    with pytest.raises(Corrupt, match="restore a backup"):
        await broken.open()


async def test_paths_that_cannot_hold_a_database(tmp_path: Path) -> None:
    with pytest.raises(NotWritable, match="not a directory"):
        await SqliteStore(tmp_path / "missing" / "jobs.db").open()
    with pytest.raises(NotWritable, match="is a directory"):
        await SqliteStore(tmp_path).open()


@pytest.mark.processes
def test_an_unwritable_directory(tmp_path: Path, project_root: Path) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from forge_jobs.backends.sqlite.store import SqliteStore\n"
        "from forge_jobs.core.errors import NotWritable\n"
        "os.getuid() or (os.setgid(65534), os.setuid(65534))\n"
        "try:\n"
        "    asyncio.run(SqliteStore(sys.argv[1]).open())\n"
        "except NotWritable as error:\n"
        "    print(error)\n"
    )
    folder = tmp_path / "closed"
    folder.mkdir()
    for directory in (tmp_path, *tmp_path.parents):
        if directory.owner() == folder.owner() and directory.stat().st_mode & 0o777 == 0o700:
            directory.chmod(0o711)
    folder.chmod(0o555)
    answer = subprocess.run(
        [sys.executable, "-c", program, str(folder / "jobs.db")],
        env=dict(os.environ, PYTHONPATH=str(project_root / "src")),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "cannot be written" in answer.stdout
    assert "needs write access" in answer.stdout


async def test_a_file_that_vanished_under_us(path: Path) -> None:
    store = SqliteStore(path)
    store.enqueue_sync([A_JOB])
    os.unlink(path)
    with pytest.raises(Unavailable, match="removed or replaced"):
        await store.jobs.enqueue([A_JOB])
    noticed = 0
    for number in range(20):
        try:
            store.enqueue_sync([A_JOB])
            await store.jobs.exchange(Exchange(owner=1, number=number))
        except Unavailable:
            noticed += 1
    assert noticed
    await store.close()


async def test_a_closed_store_refuses_calls(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    with pytest.raises(Closed):
        await store.jobs.enqueue([A_JOB])
    with pytest.raises(Closed):
        await store.metrics.counts()


async def test_an_impatient_writer_gives_up_with_no_effect(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.backends.sqlite.io.session._MAX_TRIES", 5)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="this process itself has a write transaction open"):
        await store.jobs.enqueue([A_JOB])
    with pytest.raises(Unavailable):
        store.enqueue_sync([A_JOB])
    other.execute("ROLLBACK")
    other.close()
    assert await jobs_in(store) == 0
    store.enqueue_sync([A_JOB])


MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
server:/export /mnt/share nfs4 rw 0 0
//host/share /mnt/with\\040space cifs rw 0 0
user@host:/ /mnt/remote fuse.sshfs rw 0 0
tmpfs /mnt/share/local tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/srv/jobs", "ext4", False),
        ("/mnt/share/jobs", "nfs4", True),
        ("/mnt/sharewith", "ext4", False),
        ("/mnt/with space/jobs", "cifs", True),
        ("/mnt/remote", "fuse.sshfs", True),
        ("/mnt/share/local/jobs", "tmpfs", False),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str, network: bool) -> None:
    assert file_system(path, MOUNTS) == kind
    assert is_network(kind) is network


async def test_a_network_file_system_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.backends.sqlite.os.database_file.file_system", lambda _: "nfs4")
    with pytest.raises(NotWritable, match=r"network file system \(nfs4\).*use a local disk"):
        await SqliteStore(path).open()
    assert not path.exists()


async def test_the_doctor_finds_what_is_wrong(store: SqliteStore, path: Path) -> None:
    await store.processes.register(
        NewProcess(host_id="h", label="h", queues=("q",), pid=1, hostname="here")
    )
    path.chmod(0o644)
    findings = {finding.subject: finding for finding in await store.maintenance.examine()}
    assert findings["file mode"].severity is Severity.WARNING
    assert findings["file mode"].cure == f"chmod 600 {path}"
    for subject in ("journal mode", "schema", "integrity", "workers", "durability"):
        assert findings[subject].severity is Severity.OK, findings[subject]
    assert findings["workers"].message.startswith("1 alive")
    old = sqlite3.sqlite_version_info < (3, 51, 3)
    assert findings["sqlite"].severity is (Severity.WARNING if old else Severity.OK)
    assert (await SqliteStore(path.parent / "none.db").maintenance.examine())[-1].cure


async def test_drop_keeps_the_tables_of_others(path: Path) -> None:
    user = sqlite3.connect(path)
    user.executescript("CREATE TABLE orders (item TEXT); INSERT INTO orders VALUES ('book')")
    store = SqliteStore(path)
    await store.open()
    for _ in range(2):
        with user:
            store.enqueue_in(user, [A_JOB])
        assert await jobs_in(store) == 1, "the user's connection writes to the file that is there"
        await store.maintenance.drop()
        assert user.execute("SELECT item FROM orders").fetchall() == [("book",)]
        tables = user.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'forge%'")
        assert tables.fetchall() == []
        await store.open()
        assert await jobs_in(store) == 0
    await store.close()
    user.close()


async def test_a_users_connection_to_a_dropped_file_is_refused(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    user = sqlite3.connect(path)
    user.execute("SELECT count(*) FROM forge_jobs").fetchone()
    await store.maintenance.drop()
    await store.open()
    with pytest.raises(StoreReplaced, match="tx= is connected to a file that was removed"), user:
        store.enqueue_in(user, [A_JOB])
    user.close()
    await store.close()


async def test_drop_leaves_nothing(path: Path) -> None:
    store = SqliteStore(path)
    store.enqueue_sync([A_JOB])
    await store.maintenance.drop()
    assert list(path.parent.iterdir()) == []
    store.enqueue_sync([A_JOB])
    await store.open()
    assert await jobs_in(store) == 1
    await store.close()
