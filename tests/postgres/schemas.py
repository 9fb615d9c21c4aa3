"""Schemas for tests: each test gets an empty one, which is reused and not created anew."""

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from forge_jobs.backends.postgres import schema
from tests.postgres.server import PrivateServer

_MAX_TRACES = 300
# Of this process: there may be several Schemas on one server.
_NUMBERS = itertools.count(1)


class Schemas:
    """Free schemas. A returned one is emptied before it is used again, which takes a hundredth of
    the time of creating one."""

    def __init__(self, server: PrivateServer) -> None:
        self._server = server
        self._free: list[str] = []
        self._removed: Counter[str] = Counter()
        # Read once: a test may put further migrations in place.
        self._version = len(schema.sql_files.steps())
        self._loop = asyncio.new_event_loop()
        self._connection: Any = self._loop.run_until_complete(asyncpg.connect(server.url()))

    def take(self) -> str:
        """The name of a schema that holds no jobs."""
        return self._free.pop() if self._free else self.unused()

    def unused(self) -> str:
        """The name of a schema that no test has used: its indexes hold no dead entries."""
        return f"t{os.getpid()}_{next(_NUMBERS)}"

    def give_back(self, name: str) -> None:
        """Return a schema and empty it; one that a test removed or changed is not used again."""
        numbers = f"SELECT max(value::integer) FROM {name}.meta WHERE name LIKE 'schema.%'"
        if self._fetch(numbers) == self._version:
            self._empty(name)
            self._free.append(name)

    def count(self, table: str) -> int:
        """How many rows a table has."""
        return self._fetch(f"SELECT count(*) FROM {table}")

    def url(self, name: str) -> str:
        return self._server.url(schema=name)

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()

    def _empty(self, name: str) -> None:
        self._removed[name] += self.count(f"{name}.jobs")
        tables = [table for table in schema.our_tables() if table != "control"]
        statements = [f"DELETE FROM {name}.{table}" for table in tables]
        statements.append(f"UPDATE {name}.control SET version = 0")
        self._loop.run_until_complete(self._connection.execute(";".join(statements)))
        if self._removed[name] > _MAX_TRACES:
            # Dead index entries of removed jobs change how claims search (see claim_watermark).
            self._loop.run_until_complete(self._connection.execute(f"VACUUM {name}.jobs"))
            del self._removed[name]

    def _fetch(self, query: str) -> Any:
        try:
            return self._loop.run_until_complete(self._connection.fetchval(query))
        except asyncpg.UndefinedTableError:
            return None


@pytest.fixture(scope="session")
def schemas(postgres: PrivateServer) -> Iterator[Schemas]:
    made = Schemas(postgres)
    yield made
    made.close()
