"""The application of the steps storm: workflows of ten steps whose functions record their effects.

The effects of *flow* and *plain* go to a file, those of *payment* to a table of the same database,
in the transaction that stores the step. STORM_VERSION names the version of the application: they
differ in *changing*, whose workflows begin under one of them and go on under the other.
"""

import asyncio
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from forge_jobs import Context, Forge
from forge_jobs.backends.postgres.connection import address
from rigs.storms.history import History
from rigs.storms.step_workload import (
    EVENT,
    INSERTED,
    PAYMENTS,
    REMOVED,
    RENAMED,
    STEPS,
    VERSIONS,
    value_of,
)

URL = os.environ["STORM_URL"]
FOLDER = Path(os.environ["STORM_FOLDER"])
VERSION = os.environ["STORM_VERSION"]
IS_NEW = VERSIONS[1] == VERSION
ATTEMPTS = 1_000
# Longer than any event takes to come, shorter than the clocks of the processes are wrong.
DEADLINE = "5m"

forge = Forge(URL)
_history: list[History] = []


def note(op: str, name: str, step: int, called: str = "") -> None:
    if not _history:
        _history.append(History(FOLDER / f"runner-{os.getpid()}.jsonl"))
    _history[0].write(op, name=name, step=step, called=called, version=VERSION, parent=os.getppid())


def _seconds(name: str, step: int) -> float:
    return zlib.crc32(f"{name}/{step}".encode()) % 50 / 1_000


async def effect(name: str, step: int, called: str = "") -> str:
    await asyncio.sleep(_seconds(name, step))
    note("effect", name, step, called)
    return value_of(name, step)


def effect_sync(name: str, step: int) -> str:
    time.sleep(_seconds(name, step))
    note("effect", name, step)
    return value_of(name, step)


@forge.task(queue="storm", max_attempts=ATTEMPTS)
async def flow(name: str, ctx: Context) -> list[str]:
    """Steps one after the other, a sleep, parallel steps, a wait."""

    async def step(number: int, *, key: int | None = None) -> str:
        call = ctx.step if key is None else ctx.step.using(key=key)
        value = await call("step", effect, name, number)
        note("passed", name, number)
        return value

    seen = [await step(number) for number in range(3)]
    await ctx.sleep(0.1)
    seen += await asyncio.gather(*(step(number, key=number) for number in range(3, 6)))
    event: str = await ctx.wait_for(EVENT, key=name, timeout=DEADLINE)
    seen += [await step(number) for number in range(6, STEPS)]
    return [*seen, event]


@forge.task(queue="storm", max_attempts=ATTEMPTS)
async def changing(name: str, ctx: Context) -> list[str]:
    """Its steps are those of a version; what it returns is the same."""

    async def step(number: int) -> str:
        called = "renamed" if IS_NEW and number == RENAMED else "step"
        value = await ctx.step.using(key=number)(called, effect, name, number, called)
        note("passed", name, number, called)
        return value

    seen: list[str] = []
    event = ""
    for number in range(STEPS):
        if number in (2, 8):
            await ctx.sleep(0.1)
        if number == 5:
            event = await ctx.wait_for(EVENT, key=name, timeout=DEADLINE, type=str)
            if IS_NEW:
                await step(INSERTED)
        is_gone = IS_NEW and number == REMOVED
        seen.append(value_of(name, number) if is_gone else await step(number))
    note("ended", name, STEPS)
    return [*seen, event]


@forge.task(queue="storm", max_attempts=ATTEMPTS)
def plain(name: str, ctx: Context) -> list[str]:
    """The same in a ``def`` handler, one step after the other."""
    seen: list[str] = []
    event = ""
    for number in range(STEPS):
        if number == 4:
            event = ctx.wait_for_sync(EVENT, key=name, timeout=DEADLINE, type=str)
        seen.append(ctx.step_sync("step", effect_sync, name, number))
        note("passed", name, number)
    return [*seen, event]


@forge.task(queue="storm", max_attempts=ATTEMPTS)
def payment(name: str, ctx: Context) -> list[str]:
    """Each effect and its value are one commit."""
    seen: list[str] = []
    event = ""
    for number in range(STEPS):
        if number == 4:
            event = ctx.wait_for_sync(EVENT, key=name, type=str)
        with user_transaction() as connection:
            write = ctx.step_sync.using(tx=connection)
            seen.append(write("step", _write, connection, name, number))
    return [*seen, event]


def _write(connection: Any, name: str, step: int) -> str:
    # Without parameters, whose style differs between the drivers.
    connection.execute(f"INSERT INTO {PAYMENTS} VALUES ('{name}', {step})")
    time.sleep(_seconds(name, step) / 10)
    return value_of(name, step)


@contextmanager
def user_transaction() -> Iterator[Any]:
    """A transaction of the application on the database of the jobs."""
    if URL.startswith("sqlite:"):
        file = sqlite3.connect(URL.removeprefix("sqlite:///"), timeout=30)
        try:
            with file:
                yield file
        finally:
            file.close()
    else:
        with psycopg.connect(address.parse(URL).dsn) as connection:
            yield connection


def create_payments() -> None:
    """Create the table of *payment*, in a store that exists."""
    forge.client.access.run(lambda store: store.now())
    with user_transaction() as connection:
        connection.execute(f"CREATE TABLE {PAYMENTS} (name text, step integer)")
