"""The gateway's tables in the Postgres database of its queue, in a schema of their own."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from telegram_gateway.flood import Allowance

from .contract import Reply

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS gateway_session (user_id bigint PRIMARY KEY, until bigint NOT NULL);
CREATE TABLE IF NOT EXISTS gateway_wrong_code (user_id bigint NOT NULL, at bigint NOT NULL);
CREATE INDEX IF NOT EXISTS gateway_wrong_code_user ON gateway_wrong_code (user_id, at);
CREATE TABLE IF NOT EXISTS gateway_quarantine (
    at bigint NOT NULL, bot_id text NOT NULL, body bytea NOT NULL
);
CREATE TABLE IF NOT EXISTS gateway_flood (key text PRIMARY KEY, level bigint NOT NULL);
"""
# Two gateways may start at once, and CREATE IF NOT EXISTS is not safe against itself.
_TABLES_LOCK: Final = 7_240_117
_FORGE_OPTIONS: Final = ("schema", "pooler", "listen_url")


class _Line:
    """One connection, opened when it is needed and again after it was lost."""

    def __init__(self, url: str, schema: str, *, waits_for_disk: bool) -> None:
        self._url = url
        self._schema = schema
        self._waits_for_disk = waits_for_disk
        self._turn = asyncio.Lock()
        self._connection: Any = None

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any, None]:
        """A transaction that sees the gateway's tables."""
        async with self._turn:
            if self._connection is None or self._connection.is_closed():
                # Only a gateway on Postgres needs the driver.
                import asyncpg  # pyright: ignore[reportMissingTypeStubs]

                connect: Any = asyncpg.connect  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
                self._connection = await connect(self._url, timeout=5, command_timeout=10)
            async with self._connection.transaction():
                # For this transaction only: behind a pooler the next one has another session.
                path = "SELECT set_config('search_path', $1, true)"
                if not self._waits_for_disk:
                    path += ", set_config('synchronous_commit', 'off', true)"
                await self._connection.execute(path, self._schema)
                yield self._connection

    async def close(self) -> None:
        async with self._turn:
            if self._connection is not None:
                await self._connection.close(timeout=5)
                self._connection = None


class PostgresGatewayStore:
    """Two connections: who asks for a session does not wait while messages are counted."""

    def __init__(self, url: str) -> None:
        address, self._schema = _address(url)
        self._own = _Line(address, self._schema, waits_for_disk=True)
        # A level that a power cut takes back is worth no wait for the disk.
        self._flood = _Line(address, self._schema, waits_for_disk=False)

    async def open(self) -> None:
        async with self._own.transaction() as tx:
            await tx.execute("SELECT pg_advisory_xact_lock($1)", _TABLES_LOCK)
            make = "SELECT format('CREATE SCHEMA IF NOT EXISTS %I', $1::text)"
            await tx.execute(await tx.fetchval(make, self._schema))
            await tx.execute(_TABLES)

    async def close(self) -> None:
        await self._own.close()
        await self._flood.close()

    async def session_until(self, user_id: int, now: int) -> int | None:
        text = "SELECT until FROM gateway_session WHERE user_id = $1 AND until > $2"
        async with self._own.transaction() as tx:
            return await tx.fetchval(text, user_id, now)

    async def start_session(self, user_id: int, until: int, reply: Reply) -> None:
        text = (
            "INSERT INTO gateway_session VALUES ($1, $2) "
            "ON CONFLICT (user_id) DO UPDATE SET until = excluded.until"
        )
        async with self._own.transaction() as tx:
            await tx.execute(text, user_id, until)
            await tx.execute("DELETE FROM gateway_wrong_code WHERE user_id = $1", user_id)
            await reply.aenqueue_in(tx)

    async def end_session(self, user_id: int, reply: Reply) -> None:
        async with self._own.transaction() as tx:
            await tx.execute("DELETE FROM gateway_session WHERE user_id = $1", user_id)
            await reply.aenqueue_in(tx)

    async def forget_user(self, user_id: int) -> None:
        async with self._own.transaction() as tx:
            await tx.execute("DELETE FROM gateway_session WHERE user_id = $1", user_id)
            await tx.execute("DELETE FROM gateway_wrong_code WHERE user_id = $1", user_id)

    async def wrong_codes(self, user_id: int, since: int) -> int:
        text = "SELECT count(*) FROM gateway_wrong_code WHERE user_id = $1 AND at >= $2"
        async with self._own.transaction() as tx:
            return await tx.fetchval(text, user_id, since)

    async def note_wrong_code(self, user_id: int, at: int, reply: Reply) -> None:
        async with self._own.transaction() as tx:
            await tx.execute("INSERT INTO gateway_wrong_code VALUES ($1, $2)", user_id, at)
            await reply.aenqueue_in(tx)

    async def quarantine(self, bot_id: str, at: int, body: bytes) -> None:
        async with self._own.transaction() as tx:
            await tx.execute("INSERT INTO gateway_quarantine VALUES ($1, $2, $3)", at, bot_id, body)

    async def take(self, wanted: Sequence[Allowance], now: int) -> int:
        if not wanted:
            return 0
        keys = [one.key for one in wanted]
        # A change that changes nothing: what is not there yet cannot be locked otherwise.
        read = (
            "INSERT INTO gateway_flood AS f SELECT key, 0 FROM unnest($1::text[]) AS key "
            "ORDER BY key ON CONFLICT (key) DO UPDATE SET level = f.level RETURNING key, level"
        )
        keep = (
            "UPDATE gateway_flood AS f SET level = n.level "
            "FROM unnest($1::text[], $2::bigint[]) AS n(key, level) WHERE f.key = n.key"
        )
        async with self._flood.transaction() as tx:
            levels = {row["key"]: row["level"] for row in await tx.fetch(read, keys)}
            found = [one.after(levels.get(one.key), now) for one in wanted]
            wait = max(wait for _, wait in found)
            if not wait:
                await tx.execute(keep, keys, [level for level, _ in found])
        return wait

    async def purge(self, *, now: int, wrong_before: int, quarantine_before: int) -> int:
        steps = (
            ("DELETE FROM gateway_session WHERE until <= $1", now),
            ("DELETE FROM gateway_wrong_code WHERE at < $1", wrong_before),
            ("DELETE FROM gateway_quarantine WHERE at < $1", quarantine_before),
        )
        async with self._own.transaction() as tx:
            tags = [await tx.execute(text, before) for text, before in steps]
            # What has filled up again says nothing that a missing row would not say.
            await tx.execute("DELETE FROM gateway_flood WHERE level <= $1", now)
        return sum(int(tag.rpartition(" ")[2]) for tag in tags)


def _address(url: str) -> tuple[str, str]:
    """The address without the options of forge_jobs, and the name of the gateway's schema."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(pairs).get("schema", "forge")
    left = urlencode([pair for pair in pairs if pair[0] not in _FORGE_OPTIONS])
    return urlunsplit(parts._replace(query=left)), f"{schema}_gateway"
