"""Django's database connections around each job, as around each request.

Connections belong to threads. Before and after a job those of its thread are closed if their server
cut them or their CONN_MAX_AGE is over, and the first query of the job asks the server whether the
connection still works: it costs a round trip, and no job dies of a restart of the server.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from asgiref.sync import sync_to_async

from .django_api import connections, reset_queries, settings


@contextmanager
def fresh_connections() -> Generator[None]:
    """Around a job on this thread."""
    prepare_connections()
    try:
        yield
    finally:
        prepare_connections()


@asynccontextmanager
async def afresh_connections() -> AsyncGenerator[None]:
    """Around a job on an event loop: Django runs the queries of all coroutines on one thread."""
    prepare = sync_to_async(prepare_connections, thread_sensitive=True)
    await prepare()
    try:
        yield
    finally:
        await prepare()


def prepare_connections() -> None:
    """Close unusable and old connections of this thread; the others are checked before use."""
    if settings.DEBUG:
        # Its log of queries would grow for as long as the worker runs.
        reset_queries()
    opened: list[Any] = connections.all(initialized_only=True)
    for connection in opened:
        connection.close_if_unusable_or_obsolete()
        connection.health_check_enabled = True
