"""R6: an enqueue that fails after its jobs were committed says so; before, it had no effect."""

import asyncio
from collections.abc import AsyncGenerator

import asyncpg
import pytest
import pytest_asyncio

from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.errors import ForgeError, Full, Unavailable, Unknown
from forge_jobs.core.job import NewJob

from .server import PrivateServer, private_server

JOB = NewJob(kind="work", queue="q")
FULL_DISK = """
CREATE FUNCTION {s}.full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON {s}.jobs EXECUTE FUNCTION {s}.full_disk()
"""


async def stored(store: PostgresStore) -> int:
    return sum(count.jobs for count in await store.metrics.counts())


async def fails(store: PostgresStore, jobs: int) -> ForgeError:
    """The error of an enqueue that notifies in the same call."""
    await asyncio.sleep(0.05)
    with pytest.raises(ForgeError) as caught:
        await store.jobs.enqueue([JOB] * jobs)
    return caught.value


@pytest.mark.parametrize("jobs", [1, 3])
async def test_r6_any_error_after_the_commit_is_an_unknown_effect(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setattr(store._notifier, "inline_text", lambda *_: "x" * 9_000)
    error = await fails(store, jobs)
    assert isinstance(error, Unknown)
    assert "payload string too long" in str(error)
    assert "may be stored" in str(error)
    assert await stored(store) == jobs


@pytest.mark.parametrize("jobs", [1, 3])
async def test_r6_an_error_before_the_commit_has_no_effect(
    store: PostgresStore, schema: str, postgres: PrivateServer, jobs: int
) -> None:
    blocker = await asyncpg.connect(postgres.url())
    await store._server.ask("SET lock_timeout = '200ms'")
    async with blocker.transaction():
        await blocker.execute(f"LOCK TABLE {schema}.jobs IN ACCESS EXCLUSIVE MODE")
        error = await fails(store, jobs)
    assert isinstance(error, Unavailable)
    assert "holds a lock" in str(error)
    await blocker.execute(FULL_DISK.format(s=schema))
    try:
        assert isinstance(await fails(store, jobs), Full)
    finally:
        await blocker.execute(f"DROP FUNCTION {schema}.full_disk CASCADE")
        await blocker.close()
    assert await stored(store) == 0


@pytest_asyncio.fixture
async def slow_commits() -> AsyncGenerator[PrivateServer, None]:
    """A server whose commits with ``synchronous_commit = on`` wait for a standby for ever."""
    with private_server(synchronous_standby_names="nobody", synchronous_commit="local") as server:
        yield server


async def test_r6_a_lock_timeout_of_the_notification(slow_commits: PrivateServer) -> None:
    """Commits with a notification wait for each other, and the first one here does not end."""
    server = slow_commits
    store = PostgresStore(server.url(schema="s"))
    await store.open()
    await store.jobs.enqueue([JOB])
    await store._server.ask("SET lock_timeout = '200ms'")
    first = await asyncpg.connect(server.url(), server_settings={"synchronous_commit": "on"})
    notifying = asyncio.create_task(first.execute("CREATE TABLE t (); NOTIFY elsewhere"))
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    async with asyncio.timeout(30):
        while (await asyncio.to_thread(server.sql, waiting)).strip() == "0":
            await asyncio.sleep(0.05)
    error = await fails(store, 1)
    assert isinstance(error, Unknown)
    assert "may be stored" in str(error)
    assert "holds a lock" in str(error)
    await asyncio.to_thread(server.sql, f"SELECT pg_terminate_backend({first.get_server_pid()})")
    await asyncio.gather(notifying, return_exceptions=True)
    assert await stored(store) == 2
    await store.close()
