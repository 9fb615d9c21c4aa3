"""A transaction of the application on the database that holds its jobs."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from forge_jobs.backends.postgres.connection import address


@contextmanager
def user_transaction(url: str) -> Iterator[Any]:
    """A connection of the driver; the block commits, an error rolls back."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as file, file:
            yield file
    else:
        with psycopg.connect(address.parse(url).dsn) as connection:
            yield connection
