"""A user's own transaction on the server of the store."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from forge_jobs.store.store import Store
from forge_jobs.testing.conformance.fixtures import OpenTransaction

from .server import PrivateServer


def opening_on(server: PrivateServer) -> OpenTransaction:
    """Opens transactions for the conformance suite, each on a connection of its own."""

    @asynccontextmanager
    async def opened(store: Store) -> AsyncGenerator[Any, None]:
        del store
        connection = await asyncpg.connect(server.url())
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    return opened
