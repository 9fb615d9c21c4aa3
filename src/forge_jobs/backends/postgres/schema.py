"""Creates and migrates the schema and installs the server functions.

Many processes may start at once, of one release or of two: an advisory lock lets one of them change
the schema at a time, and a process never replaces what a newer one installed. Everything here runs
on a connection of its own, in whole transactions and without prepared statements, so that it works
the same through any pooler.
"""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from forge_jobs.backends.shared import migrations
from forge_jobs.core.errors import NotWritable, SchemaMismatch, ServerTooOld, Unavailable
from forge_jobs.store.store import SchemaStatus

from . import function_sets, sql_files
from .connection import error_mapping
from .connection.driver import Driver, Row, Transaction, close
from .connection.server import Server

_MAINTENANCE_DATABASES: Final = ("postgres", "template1")
_TABLE: Final = re.compile(r"^CREATE TABLE forge\.(\w+)", re.MULTILINE)
_DATABASE_EXISTS: Final = frozenset({"42P04", "23505"})
_TABLE_EXISTS: Final = "42P07"
_MAX_WAIT_FOR_LOCK: Final = "60s"
_MAX_WAIT_FOR_TABLES: Final = "10s"
_ENCODINGS: Final = frozenset({"UTF8", "SQL_ASCII"})
# Tables about the schema itself, which no migration creates.
_SCHEMA_TABLES: Final = {
    "meta": '(name text COLLATE "C" PRIMARY KEY, value text NOT NULL)',
    "function_sets": (
        '(name text COLLATE "C" PRIMARY KEY, revision integer NOT NULL, functions text[] NOT NULL)'
    ),
}
_ADDITIVE: Final = "schema.additive"
_COMPATIBLE: Final = "schema.compatible"
_FUNCTIONS: Final = "functions."


@dataclass(frozen=True, slots=True)
class Found:
    """State of the schema and of the connection. ``pooled``: a pooler is in between, so statements
    of different transactions may reach different server processes."""

    status: SchemaStatus
    tag: int
    pooled: bool


async def status(server: Server) -> SchemaStatus:
    """The state of the schema; empty if the database does not exist."""
    try:
        return (await read_schema(server)).status
    except Exception as error:
        if not _no_database(error):
            raise
        return SchemaStatus(None, len(sql_files.steps()))


async def read_schema(server: Server) -> Found:
    """The state of the schema. Raises for a standby or a database that is not UTF8."""
    async with _setup(server) as driver, _transaction(driver):
        return await _found(server, driver)


async def migrate(server: Server) -> Found:
    """Apply missing migrations and install newer functions, one process at a time; the others wait
    and then have nothing left to do."""
    async with _setup(server) as driver:
        async with _transaction(driver):
            found = await _found(server, driver)
        migrations.check(_subject(server), found.status, may_migrate=True)
        if found.status.is_complete:
            return found
        try:
            async with _transaction(driver):
                await _apply(server, driver)
                return await _found(server, driver)
        except Exception as error:
            if error_mapping.code_of(error) == _TABLE_EXISTS:
                raise _not_ours(server) from error
            raise


async def create_database(server: Server) -> None:
    """Create the database of the address if the server does not have it."""
    try:
        await (await server.connect(pooled=True)).close(timeout=2.0)
        return
    except Exception as error:
        if not _no_database(error):
            raise
    name = server.address.database.replace('"', '""')
    for database in _MAINTENANCE_DATABASES:
        try:
            driver = await server.connect(pooled=True, database=database)
        except Exception as error:
            if database == _MAINTENANCE_DATABASES[-1] or isinstance(error, ServerTooOld):
                raise
            del error
            continue
        try:
            await driver.execute(f'CREATE DATABASE "{name}"')
        except Exception as error:
            if error_mapping.code_of(error) not in _DATABASE_EXISTS:
                raise error_mapping.translated(
                    error, location=server.address.location, may_have_committed=True
                ) from error
        finally:
            await driver.close(timeout=2.0)
        return


async def drop(server: Server) -> None:
    """Remove our tables and functions; the schema itself only if nothing else is in it."""
    try:
        await _drop(server)
    except Exception as error:
        if not _no_database(error):
            raise


async def _drop(server: Server) -> None:
    schema = server.address.schema
    async with _setup(server) as driver, _transaction(driver):
        await _lock(server, driver)
        found = await _found(server, driver)
        if (found.status.current or 0) > found.status.wanted:
            raise SchemaMismatch(
                f"{_subject(server)} has version {found.status.current} and this release knows up "
                f"to {found.status.wanted}: drop it with the release that created it"
            )
        functions = set(our_functions())
        if found.status.current is not None:
            installed = await _fetch(server, driver, "installed_functions")
            functions.update(row["name"] for row in installed)
        names = ", ".join(f"{schema}.{name}" for name in (*our_tables(), *_SCHEMA_TABLES))
        await driver.execute(f"DROP TABLE IF EXISTS {names} CASCADE")
        for row in await _fetch(server, driver, "our_functions", schema, sorted(functions)):
            await driver.execute(f"DROP ROUTINE IF EXISTS {row['name']} CASCADE")
        exists = await _fetch(server, driver, "schema_exists", schema)
        if exists and not await _fetch(server, driver, "things_left", schema):
            await driver.execute(f"DROP SCHEMA {schema}")


def check(server: Server, found: SchemaStatus) -> None:
    """SchemaMismatch unless this code can use the schema."""
    migrations.check(_subject(server), found)


def our_tables() -> list[str]:
    """Every table that a migration creates."""
    return [name for step in sql_files.steps() for name in _TABLE.findall(step.text)]


def our_functions() -> list[str]:
    """Every function of this release's sets."""
    return [name for one in function_sets.load() for name in one.functions]


async def _apply(server: Server, driver: Driver) -> None:
    schema = server.address.schema
    await _lock(server, driver)
    if not await _fetch(server, driver, "schema_exists", schema):
        await driver.execute(f"CREATE SCHEMA {schema}")
    for name, columns in _SCHEMA_TABLES.items():
        await driver.execute(f"CREATE TABLE IF NOT EXISTS {schema}.{name} {columns}")
    facts = await _meta(server, driver)
    status = _status(facts)
    migrations.check(_subject(server), status, may_migrate=True)
    steps = sql_files.steps()
    for step in steps[status.current or 0 :]:
        await driver.execute(sql_files.within(step.text, schema))
    await _install_functions(server, driver, facts)
    if "tag" not in facts:
        await _fetch(server, driver, "set_meta", "tag", str(server.entropy.bits(16)))
    if (status.current or 0) < len(steps):
        await _fetch(server, driver, "set_meta", _ADDITIVE, str(len(steps)))
        number = str(migrations.compatible(steps))
        await _fetch(server, driver, "set_meta", _COMPATIBLE, number)


async def _install_functions(server: Server, driver: Driver, facts: Mapping[str, str]) -> None:
    """Install sets that are missing or older than ours. Replacing a function takes no lock that a
    worker's call would wait for."""
    schema, installed = server.address.schema, _installed(facts)
    for one in function_sets.outdated(installed, function_sets.load()):
        names = one.functions
        if one.name not in installed and await _fetch(
            server, driver, "our_functions", schema, names
        ):
            raise _not_ours(server)
        await driver.execute(sql_files.within(one.text, schema))
        await _fetch(server, driver, "set_function_set", one.name, one.revision, names)


async def _lock(server: Server, driver: Driver) -> None:
    """Take the advisory lock, and bound the wait for the locks of tables."""
    await _fetch(server, driver, "lock_timeout", _MAX_WAIT_FOR_LOCK)
    await _fetch(server, driver, "lock_schema", server.address.schema)
    await _fetch(server, driver, "lock_timeout", _MAX_WAIT_FOR_TABLES)


async def _found(server: Server, driver: Driver) -> Found:
    [probe] = await _fetch(server, driver, "probe")
    if probe["standby"]:
        raise Unavailable(
            f"{server.address.location} is a standby that takes no writes: give the address of the "
            "primary, or all hosts of the cluster"
        )
    if probe["encoding"] not in _ENCODINGS:
        raise error_mapping.not_unicode(server.address.location, probe["encoding"])
    pooled = server.address.pooled
    if pooled is None:
        pooled = probe["pid"] != driver.get_server_pid()
    facts = await _meta(server, driver) if probe["ours"] else {}
    return Found(_status(facts), int(facts.get("tag", "0")), pooled)


def _status(facts: Mapping[str, str]) -> SchemaStatus:
    wanted = len(sql_files.steps())
    if _ADDITIVE not in facts:
        return SchemaStatus(None, wanted)
    outdated = function_sets.outdated(_installed(facts), function_sets.load())
    return SchemaStatus(
        int(facts[_ADDITIVE]),
        wanted,
        int(facts[_COMPATIBLE]),
        tuple(one.name for one in outdated),
    )


def _installed(facts: Mapping[str, str]) -> dict[str, int]:
    """The revisions of the installed function sets."""
    return {
        name.removeprefix(_FUNCTIONS): int(revision)
        for name, revision in facts.items()
        if name.startswith(_FUNCTIONS)
    }


def _subject(server: Server) -> str:
    return f"{server.address.location}: schema {server.address.schema!r}"


def _not_ours(server: Server) -> NotWritable:
    return NotWritable(
        f"{_subject(server)} already has a table or function of the same name that is not ours: "
        "choose another with ?schema="
    )


def _no_database(error: BaseException) -> bool:
    return error_mapping.code_of(error.__cause__ or error) == error_mapping.NO_DATABASE


async def _meta(server: Server, driver: Driver) -> dict[str, str]:
    return {row["name"]: row["value"] for row in await _fetch(server, driver, "meta")}


async def _fetch(server: Server, driver: Driver, name: str, *args: Any) -> Sequence[Row]:
    return await driver.fetch(
        sql_files.statements("maintenance", server.address.schema)[name], *args
    )


@asynccontextmanager
async def _setup(server: Server) -> AsyncGenerator[Driver, None]:
    driver = await server.connect(pooled=True)
    try:
        yield driver
    except Exception as error:
        mapped = error_mapping.translated(
            error, location=server.address.location, may_have_committed=False
        )
        if error_mapping.code_of(error) == error_mapping.LOCK_TIMEOUT:
            mapped = Unavailable(
                f"{_subject(server)} is locked by another transaction: stop the workers or end "
                "that transaction, try again"
            )
        if mapped is error:
            raise
        raise mapped from error
    finally:
        await close(driver)


@asynccontextmanager
async def _transaction(driver: Driver) -> AsyncGenerator[None, None]:
    transaction = Transaction(driver, pooled=True)
    await transaction.start()
    try:
        yield
    except BaseException as error:
        if not error_mapping.is_lost(error):
            await transaction.rollback()
        raise
    await transaction.commit()
