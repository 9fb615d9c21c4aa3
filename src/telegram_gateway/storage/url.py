"""Chooses the store for the gateway's own tables by the URL of the job store."""

from urllib.parse import unquote, urlsplit

from .contract import GatewayStore
from .memory import MemoryGatewayStore


def gateway_store_at(url: str | None) -> GatewayStore:
    """In the database of the job store; in memory without a database or with a memory store."""
    if url is None:
        return MemoryGatewayStore()
    parts = urlsplit(url)
    match parts.scheme:
        case "sqlite":
            from .sqlite import SqliteGatewayStore

            return SqliteGatewayStore(unquote(parts.path.removeprefix("/")))
        case "postgres" | "postgresql":
            from .postgres import PostgresGatewayStore

            return PostgresGatewayStore(url)
        case _:
            return MemoryGatewayStore()
