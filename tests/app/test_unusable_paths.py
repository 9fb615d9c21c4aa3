"""Bad places for a store, seen through Forge: each with a clear error, and nothing lost."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import (
    BadUrl,
    Forge,
    Full,
    NotWritable,
    SchemaMismatch,
    Unavailable,
    open_storage,
    testing,
)
from forge_jobs.cli.commands import run
from forge_jobs.pull import JobQueue


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "forge.db"


@pytest.fixture
def forge(file: Path) -> Iterator[Forge]:
    with Forge(f"sqlite:///{file}") as made:
        made.task(kind="job")(_job)
        yield made


def _job(n: int, text: str = "") -> int:
    return n


@pytest.mark.parametrize("way", ["Forge", "open_storage", "JobQueue", "--url", "forge.toml"])
def test_sqlite_in_memory_is_refused_and_creates_no_file(
    way: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SQLite's own name for a database in memory: jobs in it would be seen by one connection."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORGE_URL", raising=False)
    url, remedy = "sqlite:///:memory:", "write memory:// for tests"
    opened = {"Forge": Forge, "open_storage": open_storage, "JobQueue": JobQueue.open}.get(way)
    if opened is not None:
        with pytest.raises(BadUrl, match=remedy):
            opened(url)
    elif way == "--url":
        assert run(["stats", "--url", url]) == 2
        assert remedy in capsys.readouterr().err
    else:
        (tmp_path / "forge.toml").write_text(f'url = "{url}"\n')
        with Forge() as forge, pytest.raises(BadUrl, match=remedy):
            forge.enqueue("job")
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".toml"] == []


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with Forge(f"sqlite:///{tmp_path}/nowhere/forge.db") as forge:
        with pytest.raises(NotWritable, match="nowhere is not a directory: create it"):
            forge.enqueue("job")
        (tmp_path / "nowhere").mkdir()
        assert forge.enqueue("job").refresh().status == "pending"


def test_a_path_that_is_a_directory(tmp_path: Path) -> None:
    with Forge(f"sqlite:///{tmp_path}") as forge, pytest.raises(NotWritable, match="name a file"):
        forge.enqueue("job")


def test_a_directory_that_may_not_be_written() -> None:
    script = """
        import os, stat, sys, tempfile
        from forge_jobs import Forge, NotWritable
        import forge_jobs.backends.sqlite.store

        outer = tempfile.mkdtemp()
        os.chmod(outer, 0o755)
        inner = os.path.join(outer, "closed")
        os.mkdir(inner, 0o555)
        forge = Forge(f"sqlite:///{inner}/forge.db")
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)  # permissions mean nothing to root
        try:
            forge.enqueue("job", {})
            print("stored")
        except NotWritable as error:
            print(error)
        finally:
            if root:
                os.seteuid(0)
            forge.close()
            assert os.listdir(inner) == []
            os.rmdir(inner)
            os.rmdir(outer)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    assert "forge.db cannot be written" in done.stdout
    assert "SQLite needs write access to the file and to" in done.stdout


def test_something_else_than_a_database(file: Path) -> None:
    file.write_text("my diary, " * 1_000)
    before = file.read_bytes()
    with Forge(f"sqlite:///{file}") as forge, pytest.raises(Exception, match="not a database"):
        forge.enqueue("job")
    assert file.read_bytes() == before


def test_a_database_of_a_newer_version(forge: Forge, file: Path) -> None:
    first = forge.enqueue("job", {"n": 1})
    forge.close()
    connection = sqlite3.connect(file)
    with connection:
        connection.execute("INSERT INTO forge_schema VALUES (9999, 'from the future', 0, 1)")
    connection.close()
    with Forge(f"sqlite:///{file}") as later:
        for call in (
            lambda: later.enqueue("job", {"n": 2}),
            lambda: asyncio.run(_aenqueue(later)),
            later.job(first.id).refresh,
        ):
            with pytest.raises(SchemaMismatch) as caught:
                call()
            assert "has version 9999" in str(caught.value)
            assert "upgrade forge-jobs" in str(caught.value)
    connection = sqlite3.connect(file)
    with connection:
        connection.execute("DELETE FROM forge_schema WHERE number = 9999")
    connection.close()
    with Forge(f"sqlite:///{file}") as again:
        assert [job.id for job in testing.enqueued(again)] == [first.id]


async def _aenqueue(forge: Forge) -> None:
    await forge.aenqueue("job", {"n": 2})


def test_without_leave_to_migrate(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setenv("FORGE_AUTO_MIGRATE", "0")
    with Forge(f"sqlite:///{file}") as forge:
        with pytest.raises(Unavailable, match="forge db create"):
            forge.enqueue("job")
        assert not file.exists()
        file.touch()
        with pytest.raises(SchemaMismatch, match="forge db migrate"):
            forge.enqueue("job")
        with pytest.raises(SchemaMismatch, match="forge db migrate"):
            asyncio.run(_aenqueue(forge))
        asyncio.run(_migrate(forge))
        assert forge.enqueue("job").refresh().status == "pending"


async def _migrate(forge: Forge) -> None:
    await forge.store.maintenance.migrate()


class Bounded:
    """Real SQLite that may use no more than so many pages: to SQLite that is a full disk."""

    def __init__(self, connect: Any) -> None:
        self._connect = connect
        self.pages = 1_073_741_823
        self.made: list[sqlite3.Connection] = []

    def __call__(self, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = self._connect(*args, **kwargs)
        connection.execute(f"PRAGMA max_page_count = {self.pages}")
        self.made.append(connection)
        return connection


def test_a_full_disk_while_enqueueing(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    bounded = Bounded(sqlite3.connect)
    monkeypatch.setattr(sqlite3, "connect", bounded)
    with Forge(f"sqlite:///{file}") as forge:
        job = forge.task(kind="job")(_job)
        forge.ready()
        bounded.pages = 120
    acknowledged: list[str] = []
    with Forge(f"sqlite:///{file}") as forge:
        job = forge.task(kind="job")(_job)

        def fill() -> None:
            for n in range(2_000):
                acknowledged.append(job.enqueue(n, "x" * 1_500).id)

        with pytest.raises(Full) as caught:
            fill()
        assert "nothing was stored" in str(caught.value)
        with pytest.raises(Full):
            job.enqueue_many([(n, "y" * 1_500) for n in range(500)])
        with pytest.raises(Full):
            asyncio.run(_many(job))
        assert len(acknowledged) > 10
    bounded.pages = 1_073_741_823
    with Forge(f"sqlite:///{file}") as forge:
        job = forge.task(kind="job")(_job)
        assert [kept.id for kept in testing.enqueued(forge)] == acknowledged
        assert job.enqueue(1, "there is room again").refresh().status == "pending"


async def _many(job: Any) -> None:
    await job.aenqueue_many([(n, "z" * 1_500) for n in range(500)])
