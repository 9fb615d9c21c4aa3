"""Creating and upgrading the schema, safely when many processes start at once.

Everything here runs on a connection of its own, in whole transactions and without prepared
statements, so that it works the same through any pooler.
"""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from forge_jobs.core.errors import NotWritable, SchemaMismatch, ServerTooOld, Unavailable
from forge_jobs.store.store import SchemaStatus

from . import sql_files
from .connection import error_mapping
from .connection.driver import Driver, Row
from .connection.server import Server

_MAINTENANCE: Final = ("postgres", "template1")
_TABLE: Final = re.compile(r"^CREATE TABLE forge\.(\w+)", re.MULTILINE)
_FUNCTION: Final = re.compile(r"^CREATE (?:FUNCTION|PROCEDURE) forge\.(\w+)", re.MULTILINE)
_EXISTS: Final = frozenset({"42P04", "23505"})
_TURN: Final = "60s"
_TABLES: Final = "10s"
_ENCODINGS: Final = frozenset({"UTF8", "SQL_ASCII"})
_TAKEN: Final = frozenset({"42P07", "42723"})


@dataclass(frozen=True, slots=True)
class Found:
    """What a look at the server told. ``pooled``: something between us gives out other processes'
    numbers, so statements of different transactions may reach different servers."""

    status: SchemaStatus
    tag: int
    pooled: bool


async def status(server: Server) -> SchemaStatus:
    """Which schema is there; none when there is not even a database."""
    try:
        return (await read_schema(server)).status
    except Exception as error:
        if not _no_database(error):
            raise
        return SchemaStatus(None, len(sql_files.steps()))


async def read_schema(server: Server) -> Found:
    """What is there. Raises for a server that cannot be used."""
    async with _setup(server) as driver, _transaction(driver):
        return await _found(server, driver)


async def migrate(server: Server) -> Found:
    """Apply what is missing, one process at a time; the others wait and find it done."""
    async with _setup(server) as driver:
        async with _transaction(driver):
            found = await _found(server, driver)
        if found.status.current == found.status.wanted:
            return found
        check(server, found.status, missing_is_fine=True)
        try:
            async with _transaction(driver):
                await _apply(server, driver)
                return await _found(server, driver)
        except Exception as error:
            if error_mapping.code_of(error) in _TAKEN:
                raise NotWritable(
                    f"{server.address.place}: schema {server.address.schema!r} already has a table "
                    "or function of the same name that is not ours: choose another with ?schema="
                ) from error
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
    for place in _MAINTENANCE:
        try:
            driver = await server.connect(pooled=True, database=place)
        except Exception as error:
            if place == _MAINTENANCE[-1] or isinstance(error, ServerTooOld):
                raise
            del error
            continue
        try:
            await driver.execute(f'CREATE DATABASE "{name}"')
        except Exception as error:
            if error_mapping.code_of(error) not in _EXISTS:
                raise error_mapping.meaning(
                    error, place=server.address.place, exposed=True
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
        names = ", ".join(f"{schema}.{name}" for name in (*our_tables(), "meta"))
        await driver.execute(f"DROP TABLE IF EXISTS {names} CASCADE")
        for row in await _fetch(server, driver, "our_functions", schema, our_functions()):
            await driver.execute(f"DROP ROUTINE IF EXISTS {row['name']} CASCADE")
        exists = await _fetch(server, driver, "schema_exists", schema)
        if exists and not await _fetch(server, driver, "things_left", schema):
            await driver.execute(f"DROP SCHEMA {schema}")


def check(server: Server, found: SchemaStatus, *, missing_is_fine: bool = False) -> None:
    """SchemaMismatch unless the schema is the one this code wants."""
    place, schema = server.address.place, server.address.schema
    if found.current == found.wanted:
        return
    if (found.current or 0) > found.wanted:
        raise SchemaMismatch(
            f"{place}: schema {schema!r} has version {found.current} and this version of "
            f"forge-jobs knows up to {found.wanted}: upgrade forge-jobs, or use another schema"
        )
    if missing_is_fine:
        return
    had = "none of our tables yet" if found.current is None else f"version {found.current}"
    raise SchemaMismatch(
        f"{place}: schema {schema!r} has {had} and {found.wanted} is wanted: run `forge db migrate`"
    )


def our_tables() -> list[str]:
    """Every table a migration makes."""
    return [name for step in sql_files.steps() for name in _TABLE.findall(step.text)]


def our_functions() -> list[str]:
    """Every function a migration makes."""
    return [name for step in sql_files.steps() for name in _FUNCTION.findall(step.text)]


async def _apply(server: Server, driver: Driver) -> None:
    schema = server.address.schema
    await _lock(server, driver)
    if not await _fetch(server, driver, "schema_exists", schema):
        await driver.execute(f"CREATE SCHEMA {schema}")
    await driver.execute(
        f"CREATE TABLE IF NOT EXISTS {schema}.meta "
        '(name text COLLATE "C" PRIMARY KEY, value text NOT NULL)'
    )
    facts = await _meta(server, driver)
    current = int(facts.get("schema", "0"))
    steps = sql_files.steps()
    if current > len(steps):
        check(server, SchemaStatus(current, len(steps)))
    for step in steps[current:]:
        await driver.execute(sql_files.within(step.text, schema))
    if "tag" not in facts:
        await _fetch(server, driver, "set_meta", "tag", str(server.entropy.bits(16)))
    await _fetch(server, driver, "set_meta", "schema", str(len(steps)))


async def _lock(server: Server, driver: Driver) -> None:
    """Our turn to change the schema, and no endless wait for those who use its tables."""
    await _fetch(server, driver, "lock_patience", _TURN)
    await _fetch(server, driver, "lock_schema", server.address.schema)
    await _fetch(server, driver, "lock_patience", _TABLES)


async def _found(server: Server, driver: Driver) -> Found:
    [probe] = await _fetch(server, driver, "probe")
    if probe["standby"]:
        raise Unavailable(
            f"{server.address.place} is a standby that takes no writes: give the address of the "
            "primary, or all hosts of the cluster"
        )
    if probe["encoding"] not in _ENCODINGS:
        raise error_mapping.not_unicode(server.address.place, probe["encoding"])
    pooled = server.address.pooled
    if pooled is None:
        pooled = probe["pid"] != driver.get_server_pid()
    facts = await _meta(server, driver) if probe["ours"] else {}
    current = int(facts["schema"]) if "schema" in facts else None
    status = SchemaStatus(current, len(sql_files.steps()))
    return Found(status, int(facts.get("tag", "0")), pooled)


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
        meant = error_mapping.meaning(error, place=server.address.place, exposed=False)
        if error_mapping.code_of(error) == error_mapping.LOCK_WAIT:
            meant = Unavailable(
                f"{server.address.place}: somebody holds locks on schema "
                f"{server.address.schema!r}: stop the workers or end that transaction, try again"
            )
        if meant is error:
            raise
        raise meant from error
    finally:
        try:
            await driver.close(timeout=2.0)
        except Exception:
            driver.terminate()


@asynccontextmanager
async def _transaction(driver: Driver) -> AsyncGenerator[None, None]:
    transaction = driver.transaction()
    await transaction.start()
    try:
        yield
    except BaseException as error:
        if not error_mapping.is_lost(error):
            await transaction.rollback()
        raise
    await transaction.commit()
