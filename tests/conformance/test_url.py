"""Store addresses: what they open, and the errors for bad ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from forge_jobs.backends.memory.store import MemoryStore
from forge_jobs.backends.url import open_store
from forge_jobs.core.errors import BadUrl, NotYet
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Filter
from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.testing.clock import MovableClock


async def test_a_memory_store_is_private_unless_it_has_a_name() -> None:
    job = NewJob(kind="work", queue="q")
    first, second = open_store("memory://"), open_store("memory://")
    assert isinstance(first, MemoryStore)
    await first.jobs.enqueue([job])
    assert (await second.jobs.page(Filter(), limit=1)).jobs == ()
    assert open_store("memory://shared-by-test") is open_store("memory://shared-by-test")
    assert open_store("memory://shared-by-test") is not open_store("memory://another-by-test")


async def test_clock_and_chance_reach_the_store() -> None:
    clock = MovableClock()
    store = open_store("memory://", clock=clock, entropy=SeededEntropy(3))
    assert store.tag == SeededEntropy(3).bits(16)
    clock.advance(60)
    [answer] = await store.jobs.enqueue([NewJob(kind="work", queue="q")])
    record = await store.jobs.get(answer.id)
    assert record is not None
    assert record.enqueued_at == clock.now()


async def test_three_slashes_are_relative_and_four_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = NewJob(kind="work", queue="q")
    for url in (
        "sqlite:///here.db",
        f"sqlite:///{tmp_path}/here.db",
        f"sqlite:///{tmp_path}/here.db?synchronous=normal",
    ):
        store = open_store(url)
        await store.open()
        await store.jobs.enqueue([job])
        await store.close()
    store = open_store("sqlite:///here.db")
    await store.open()
    assert len((await store.jobs.page(Filter(), limit=9)).jobs) == 3
    await store.close()
    spaced = open_store("sqlite:///with%20space.db")
    await spaced.open()
    await spaced.close()
    assert (tmp_path / "with space.db").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "no scheme"),
        ("forge.db", "no scheme"),
        ("mysql://host/db", "mysql"),
        ("sqlite://forge.db", "three slashes"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///folder/", "names no file"),
        ("sqlite:///:memory:", "write memory://"),
        ("sqlite:////:memory:", "write memory://"),
        ("sqlite:///%3Amemory%3A", "write memory://"),
        ("sqlite:///data/:memory:?synchronous=full", "write memory://"),
        ("sqlite:///file::memory:", "write memory://"),
        ("sqlite://:memory:", "write memory://"),
        ("sqlite:///a.db?mode=ro", "mode"),
        ("sqlite:///a.db?synchronous=off", "synchronous"),
        ("sqlite:///a.db?synchronous", "cannot be read"),
        ("sqlite:///a#1.db", "%23"),
        ("memory://name/path", "memory"),
        ("memory://?x=1", "x"),
        ("http://[x", "cannot be read"),
    ],
)
def test_a_bad_address_is_named(url: str, message: str) -> None:
    with pytest.raises(BadUrl, match=message):
        open_store(url)


@pytest.mark.parametrize("url", ["redis://:geheim@h/0", "redis://h/0"])
def test_backends_that_are_not_built_yet_are_named(url: str) -> None:
    with pytest.raises(NotYet, match="not part of this version") as caught:
        open_store(url)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:geheim@h/db",
        "sqlite://u:geheim@h/db",
        "memory://u:geheim@h",
        "postgresql://u:geheim@h/db?schema=No",
        "u:geheim@h:[/db",
    ],
)
def test_P5_no_error_repeats_a_password(url: str) -> None:
    with pytest.raises(BadUrl) as caught:
        open_store(url)
    assert "geheim" not in str(caught.value)


def test_a_backend_is_imported_only_when_it_is_asked_for() -> None:
    code = (
        "import sys; from forge_jobs.backends.url import open_store; open_store('memory://');"
        "open_store('postgresql://h/db');"
        "print([name for name in ('sqlite3', 'asyncpg', 'pytest') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
