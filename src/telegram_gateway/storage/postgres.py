"""The gateway's own tables in the Postgres database of its job store, in a schema of their own."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from telegram_gateway.flood import SendLimit

from .contract import QuarantinedBody, Reply

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS gateway_session (user_id bigint PRIMARY KEY, until bigint NOT NULL);
CREATE TABLE IF NOT EXISTS gateway_wrong_code (user_id bigint NOT NULL, at bigint NOT NULL);
CREATE INDEX IF NOT EXISTS gateway_wrong_code_user ON gateway_wrong_code (user_id, at);
CREATE TABLE IF NOT EXISTS gateway_quarantined (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at bigint NOT NULL, bot_id text NOT NULL,
    reason text NOT NULL, size bigint NOT NULL, body bytea NOT NULL
);
-- Of release 0.1, which writes it still during a rolling upgrade.
CREATE TABLE IF NOT EXISTS gateway_quarantine (
    at bigint NOT NULL, bot_id text NOT NULL, body bytea NOT NULL
);
INSERT INTO gateway_quarantined (at, bot_id, reason, size, body)
    SELECT at, bot_id, 'stored by release 0.1', length(body), body FROM gateway_quarantine;
DELETE FROM gateway_quarantine;
CREATE TABLE IF NOT EXISTS gateway_update_kind (bot_id text PRIMARY KEY, kind text NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS gateway_queue_slots (queue text PRIMARY KEY, slots integer NOT NULL);
CREATE TABLE IF NOT EXISTS gateway_flood (key text PRIMARY KEY, level bigint NOT NULL);
"""
# Two gateways may start at the same time, and concurrent CREATE IF NOT EXISTS can fail.
_TABLES_LOCK: Final = 7_240_117
_FORGE_OPTIONS: Final = ("schema", "pooler", "listen_url")


class _PostgresConnection:
    """One connection, opened on first use and reopened after it was lost."""

    def __init__(self, url: str, schema: str, *, synchronous_commit: bool) -> None:
        self._url = url
        self._schema = schema
        self._synchronous_commit = synchronous_commit
        self._lock = asyncio.Lock()
        self._connection: Any = None

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any, None]:
        """A transaction with the gateway's schema as search path."""
        async with self._lock:
            if self._connection is None or self._connection.is_closed():
                # Only a gateway on Postgres needs the driver.
                import asyncpg  # pyright: ignore[reportMissingTypeStubs]

                connect: Any = asyncpg.connect  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
                self._connection = await connect(self._url, timeout=5, command_timeout=10)
            async with self._connection.transaction():
                # For this transaction only: behind a pooler the next one may use another session.
                path = "SELECT set_config('search_path', $1, true)"
                if not self._synchronous_commit:
                    path += ", set_config('synchronous_commit', 'off', true)"
                await self._connection.execute(path, self._schema)
                yield self._connection

    async def close(self) -> None:
        async with self._lock:
            if self._connection is not None:
                await self._connection.close(timeout=5)
                self._connection = None


class PostgresGatewayStore:
    """Two connections, so that reading a session does not wait for the send limits."""

    def __init__(self, url: str) -> None:
        address, self._schema = _address(url)
        self._durable = _PostgresConnection(address, self._schema, synchronous_commit=True)
        # Losing a level in a power failure is harmless, so commits do not wait for the disk.
        self._flood = _PostgresConnection(address, self._schema, synchronous_commit=False)

    async def probe(self) -> None:
        async with self._durable.transaction() as tx:
            await tx.execute("SELECT 1")

    async def open(self) -> None:
        async with self._durable.transaction() as tx:
            await tx.execute("SELECT pg_advisory_xact_lock($1)", _TABLES_LOCK)
            create = "SELECT format('CREATE SCHEMA IF NOT EXISTS %I', $1::text)"
            await tx.execute(await tx.fetchval(create, self._schema))
            await tx.execute(_TABLES)

    async def close(self) -> None:
        await self._durable.close()
        await self._flood.close()

    async def session_until(self, user_id: int, now: int) -> int | None:
        text = "SELECT until FROM gateway_session WHERE user_id = $1 AND until > $2"
        async with self._durable.transaction() as tx:
            return await tx.fetchval(text, user_id, now)

    async def start_session(self, user_id: int, until: int, reply: Reply) -> None:
        text = (
            "INSERT INTO gateway_session VALUES ($1, $2) "
            "ON CONFLICT (user_id) DO UPDATE SET until = excluded.until"
        )
        async with self._durable.transaction() as tx:
            await tx.execute(text, user_id, until)
            await tx.execute("DELETE FROM gateway_wrong_code WHERE user_id = $1", user_id)
            await reply.aenqueue_in(tx)

    async def end_session(self, user_id: int, reply: Reply) -> None:
        async with self._durable.transaction() as tx:
            await tx.execute("DELETE FROM gateway_session WHERE user_id = $1", user_id)
            await reply.aenqueue_in(tx)

    async def delete_user(self, user_id: int) -> None:
        async with self._durable.transaction() as tx:
            await tx.execute("DELETE FROM gateway_session WHERE user_id = $1", user_id)
            await tx.execute("DELETE FROM gateway_wrong_code WHERE user_id = $1", user_id)

    async def wrong_codes(self, user_id: int, since: int) -> int:
        text = "SELECT count(*) FROM gateway_wrong_code WHERE user_id = $1 AND at >= $2"
        async with self._durable.transaction() as tx:
            return await tx.fetchval(text, user_id, since)

    async def record_wrong_code(self, user_id: int, at: int, reply: Reply) -> None:
        async with self._durable.transaction() as tx:
            await tx.execute("INSERT INTO gateway_wrong_code VALUES ($1, $2)", user_id, at)
            await reply.aenqueue_in(tx)

    async def quarantine(self, bot_id: str, at: int, body: bytes, *, reason: str, size: int) -> int:
        text = (
            "INSERT INTO gateway_quarantined (at, bot_id, reason, size, body) "
            "VALUES ($1, $2, $3, $4, $5) RETURNING id"
        )
        async with self._durable.transaction() as tx:
            return await tx.fetchval(text, at, bot_id, reason, size, body)

    async def quarantined(self, *, bot_id: str | None, limit: int) -> list[QuarantinedBody]:
        text = (
            "SELECT * FROM gateway_quarantined "
            "WHERE $1::text IS NULL OR bot_id = $1 ORDER BY id DESC LIMIT $2"
        )
        async with self._durable.transaction() as tx:
            return [QuarantinedBody(*row) for row in await tx.fetch(text, bot_id, limit)]

    async def quarantined_body(self, number: int) -> QuarantinedBody | None:
        text = "SELECT * FROM gateway_quarantined WHERE id = $1"
        async with self._durable.transaction() as tx:
            row = await tx.fetchrow(text, number)
        return None if row is None else QuarantinedBody(*row)

    async def delete_quarantined(self, number: int) -> None:
        async with self._durable.transaction() as tx:
            await tx.execute("DELETE FROM gateway_quarantined WHERE id = $1", number)

    async def assign_update_kind(self, bot_id: str, candidates: Sequence[str]) -> dict[str, str]:
        # Nothing happens if the bot has a kind, or the kind a bot.
        text = "INSERT INTO gateway_update_kind VALUES ($1, $2) ON CONFLICT DO NOTHING"
        async with self._durable.transaction() as tx:
            for kind in candidates:
                await tx.execute(text, bot_id, kind)
            rows = await tx.fetch("SELECT bot_id, kind FROM gateway_update_kind")
        return {row["bot_id"]: row["kind"] for row in rows}

    async def queue_slots(self) -> dict[str, int]:
        async with self._durable.transaction() as tx:
            rows = await tx.fetch("SELECT queue, slots FROM gateway_queue_slots")
        return {row["queue"]: row["slots"] for row in rows}

    async def record_queue_slots(self, queue: str, slots: int) -> None:
        text = (
            "INSERT INTO gateway_queue_slots VALUES ($1, $2) "
            "ON CONFLICT (queue) DO UPDATE SET slots = excluded.slots"
        )
        async with self._durable.transaction() as tx:
            await tx.execute(text, queue, slots)

    async def acquire(self, wanted: Sequence[SendLimit], now: int) -> int:
        if not wanted:
            return 0
        keys = [one.key for one in wanted]
        # An upsert without a change locks the rows, including those that do not exist yet.
        read = (
            "INSERT INTO gateway_flood AS f SELECT key, 0 FROM unnest($1::text[]) AS key "
            "ORDER BY key ON CONFLICT (key) DO UPDATE SET level = f.level RETURNING key, level"
        )
        write = (
            "UPDATE gateway_flood AS f SET level = n.level "
            "FROM unnest($1::text[], $2::bigint[]) AS n(key, level) WHERE f.key = n.key"
        )
        async with self._flood.transaction() as tx:
            levels = {row["key"]: row["level"] for row in await tx.fetch(read, keys)}
            found = [one.after_send(levels.get(one.key), now) for one in wanted]
            wait = max(wait for _, wait in found)
            if not wait:
                await tx.execute(write, keys, [level for level, _ in found])
        return wait

    async def purge(self, *, now: int, wrong_before: int, quarantine_before: int) -> int:
        steps = (
            ("DELETE FROM gateway_session WHERE until <= $1", now),
            ("DELETE FROM gateway_wrong_code WHERE at < $1", wrong_before),
            ("DELETE FROM gateway_quarantined WHERE at < $1", quarantine_before),
        )
        async with self._durable.transaction() as tx:
            tags = [await tx.execute(text, before) for text, before in steps]
            # A limit with its full burst available is equivalent to a missing row.
            await tx.execute("DELETE FROM gateway_flood WHERE level <= $1", now)
        return sum(int(tag.rpartition(" ")[2]) for tag in tags)


def _address(url: str) -> tuple[str, str]:
    """The URL without the options of forge_jobs, and the name of the gateway's schema."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(pairs).get("schema", "forge")
    left = urlencode([pair for pair in pairs if pair[0] not in _FORGE_OPTIONS])
    return urlunsplit(parts._replace(query=left)), f"{schema}_gateway"
