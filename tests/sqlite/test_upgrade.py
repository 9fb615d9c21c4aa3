"""A file of an earlier schema is brought up to date with everything in it."""

from pathlib import Path

import pytest

from forge_jobs.backends.sqlite import schema
from forge_jobs.backends.sqlite.store import SqliteStore
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Filter
from forge_jobs.store.store import SchemaStatus


@pytest.mark.parametrize("before", range(1, schema.WANTED))
async def test_an_earlier_file_is_upgraded_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    path = tmp_path / "jobs.db"
    with monkeypatch.context() as earlier:
        earlier.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:before])
        earlier.setattr(schema, "WANTED", before)
        old = SqliteStore(path)
        await old.open()
        [job] = await old.jobs.enqueue([NewJob(kind="work", queue="q")])
        await old.close()
    store = SqliteStore(path)
    assert await store.maintenance.schema_status() == SchemaStatus(before, schema.WANTED, 1)
    await store.open()
    assert await store.maintenance.schema_status() == SchemaStatus(
        schema.WANTED, schema.WANTED, schema.COMPATIBLE
    )
    assert [found.id for found in (await store.jobs.page(Filter(), limit=9)).jobs] == [job.id]
    assert (await store.settings.put("web", "key", b"x")).version == 1
    await store.close()
