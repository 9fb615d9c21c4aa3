"""Creating, upgrading and dropping the schema; errors for a wrong address or server."""

import asyncio
import re
import subprocess
import sys
import tempfile

import pytest

from forge_jobs.backends.postgres import function_sets, sql_files
from forge_jobs.backends.postgres.connection import error_mapping
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.errors import ForgeError, NotWritable, SchemaMismatch, Unavailable
from forge_jobs.core.job import NewJob

from .server import PASSWORD, PrivateServer

OPEN_AND_ENQUEUE = """
import asyncio, sys
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.core.job import NewJob

async def main():
    store = PostgresStore(sys.argv[1])
    await store.open()
    await store.jobs.enqueue([NewJob(kind="work", queue="q")])
    print(store.tag)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.processes
def test_ten_processes_start_at_once_on_an_empty_database(postgres: PrivateServer) -> None:
    url = postgres.url(schema="many")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN_AND_ENQUEUE, url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(10)
    ]
    done = [process.communicate(timeout=240) for process in started]
    assert [process.returncode for process in started] == [0] * 10, done
    assert len({tag for tag, _ in done}) == 1
    assert postgres.sql("SELECT count(*) FROM many.jobs").strip() == "10"


async def refused(url: str, *, migrate: bool = True) -> ForgeError:
    """The error of a store that cannot be opened: one line, and without any password."""
    store = PostgresStore(url)
    with pytest.raises(ForgeError) as caught:
        await store.open(migrate=migrate)
    await store.close()
    text = str(caught.value)
    assert "\n" not in text
    assert PASSWORD not in text
    assert "wrong-word" not in text
    return caught.value


async def test_a_wrong_password(postgres: PrivateServer) -> None:
    postgres.sql(
        "DROP ROLE IF EXISTS stranger", f"CREATE ROLE stranger LOGIN PASSWORD '{PASSWORD}'"
    )
    error = await refused(postgres.url(user="stranger", password="wrong-word"))
    assert isinstance(error, NotWritable)
    assert "password" in str(error)


async def test_an_unknown_database_can_be_created(postgres: PrivateServer) -> None:
    url = postgres.url(database="not-there-yet")
    error = await refused(url)
    assert isinstance(error, NotWritable)
    assert "forge db create" in str(error)
    store = PostgresStore(url)
    assert (await store.maintenance.schema_status()).current is None
    await store.maintenance.drop()
    made = await store.maintenance.migrate()
    assert made.current == made.wanted
    await store.open(migrate=False)
    await store.jobs.enqueue([NewJob(kind="work", queue="q")])
    await store.close()


async def test_no_server_at_the_address() -> None:
    with tempfile.TemporaryDirectory() as folder:
        error = await refused(f"postgresql://me@/shop?host={folder}")
    assert isinstance(error, Unavailable)


async def test_a_server_that_is_too_old(
    postgres: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_mapping, "OLDEST_SERVER", 99)
    error = await refused(postgres.url(schema="old"))
    assert isinstance(error, NotWritable)
    assert "99" in str(error)


async def test_a_user_without_the_right_to_create(postgres: PrivateServer) -> None:
    postgres.sql("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN")
    error = await refused(postgres.url(user="guest", schema="guests"))
    assert isinstance(error, NotWritable)
    assert "permission" in str(error)


async def test_a_table_of_another_program_is_not_changed(postgres: PrivateServer) -> None:
    postgres.sql("CREATE SCHEMA taken", "CREATE TABLE taken.jobs (mine text)")
    error = await refused(postgres.url(schema="taken"))
    assert isinstance(error, NotWritable)
    assert "schema=" in str(error)
    assert postgres.sql("SELECT count(*) FROM taken.jobs").strip() == "0"


async def test_only_the_compatible_number_refuses_older_code(postgres: PrivateServer) -> None:
    url = postgres.url(schema="newer")
    store = PostgresStore(url)
    await store.open()
    await store.close()
    postgres.sql("UPDATE newer.meta SET value = '999' WHERE name = 'schema.additive'")
    for migrate in (True, False):
        await store.open(migrate=migrate)
        await store.jobs.enqueue([NewJob(kind="work", queue="q")])
        await store.close()
    status = await store.maintenance.schema_status()
    assert (status.current, status.compatible, status.is_complete) == (999, 1, True)
    with pytest.raises(SchemaMismatch, match="drop it with the release that created it"):
        await store.maintenance.drop()
    postgres.sql("UPDATE newer.meta SET value = '998' WHERE name = 'schema.compatible'")
    for migrate in (True, False):
        error = await refused(url, migrate=migrate)
        assert isinstance(error, SchemaMismatch)
        assert "999" in str(error)
        assert "998" in str(error)
        assert "upgrade forge-jobs" in str(error)


async def test_functions_are_replaced_by_newer_ones_and_never_by_older_ones(
    postgres: PrivateServer,
) -> None:
    url = postgres.url(schema="revised")
    store = PostgresStore(url)
    await store.open()
    await store.close()

    def installed() -> str:
        return postgres.sql(
            "SELECT prosrc FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace "
            "WHERE nspname = 'revised' AND proname = 'expiry_message_v1'"
        )

    ours, name = installed(), "primitives_v1"
    another = (
        "CREATE OR REPLACE FUNCTION revised.expiry_message_v1() RETURNS text "
        "LANGUAGE sql IMMUTABLE AS $$SELECT 'another text'$$"
    )
    # The functions of a newer release stay, and nothing is missing.
    postgres.sql(another, f"UPDATE revised.function_sets SET revision = 9 WHERE name = '{name}'")
    await store.open(migrate=True)
    await store.close()
    assert "another text" in installed()
    # Those of an older one are replaced, unless migrations are switched off.
    postgres.sql(f"UPDATE revised.function_sets SET revision = 0 WHERE name = '{name}'")
    assert (await store.maintenance.schema_status()).outdated_functions == (name,)
    error = await refused(url, migrate=False)
    assert isinstance(error, SchemaMismatch)
    assert name in str(error)
    assert "forge db migrate" in str(error)
    await store.open()
    await store.close()
    assert installed() == ours


async def test_a_function_of_another_program_is_not_changed(postgres: PrivateServer) -> None:
    mine = "CREATE FUNCTION own.exchange_v1() RETURNS text LANGUAGE sql AS $$SELECT 'mine'$$"
    postgres.sql("CREATE SCHEMA own", mine)
    error = await refused(postgres.url(schema="own"))
    assert isinstance(error, NotWritable)
    assert "schema=" in str(error)
    assert postgres.sql("SELECT own.exchange_v1()").strip() == "mine"


def test_functions_of_a_set_carry_its_version_and_name_what_they_call() -> None:
    sets = {one.name: one for one in function_sets.load()}
    homes = {name: one.name for one in sets.values() for name in one.functions}
    assert len(homes) == sum(len(one.functions) for one in sets.values())
    for one in sets.values():
        version = one.name.rpartition("_")[2]
        assert all(name.endswith(f"_{version}") for name in one.functions)
        called = set(re.findall(r"\bforge\.(\w+_v\d+)\b", one.text))
        assert {homes[name] for name in called} - {one.name} <= set(one.requires), one.name
    texts = [
        text
        for file in ("bulk", "jobs", "limits", "metrics", "processes", "schedules", "settings")
        for text in sql_files.statements(file, "forge").values()
    ]
    for text in texts:
        assert set(re.findall(r"\bforge\.(\w+_v\d+)\b", text)) <= set(homes)
    assert not any("CREATE FUNCTION" in step.text for step in sql_files.steps())


async def test_without_migrations_a_missing_schema_is_refused(
    postgres: PrivateServer,
) -> None:
    error = await refused(postgres.url(schema="absent"), migrate=False)
    assert isinstance(error, SchemaMismatch)
    assert "forge db migrate" in str(error)
    found = await PostgresStore(postgres.url(schema="absent")).maintenance.schema_status()
    assert found.current is None


async def test_dropping_keeps_objects_of_other_programs(postgres: PrivateServer) -> None:
    store = PostgresStore(postgres.url(schema="shared"))
    await store.open()
    postgres.sql("CREATE TABLE shared.customers (name text)")
    await store.maintenance.drop()
    left = postgres.sql(
        "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
        "WHERE nspname = 'shared'",
        "SELECT proname FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace "
        "WHERE nspname = 'shared'",
    )
    assert left.split() == ["customers"]
    await store.open()
    await store.maintenance.drop()


async def test_two_stores_open_together_in_one_process(postgres: PrivateServer) -> None:
    stores = [PostgresStore(postgres.url(schema="together")) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    assert len({store.tag for store in stores}) == 1
    for store in stores:
        await store.close()


def test_r5_no_statement_depends_on_standard_conforming_strings() -> None:
    """A backslash has one meaning in E'' strings only."""
    texts = [one.text for one in function_sets.load()] + [step.text for step in sql_files.steps()]
    for name in ("bulk", "jobs", "limits", "maintenance", "metrics", "processes", "queries"):
        texts += sql_files.statements(name, "forge").values()
    found = [line for text in texts for line in text.splitlines() if "\\" in line]
    assert found
    assert [line for line in found if not re.search(r"E'[^']*\\[^']*'", line)] == []
