"""From the address of the queue to the place where the gateway keeps its own tables."""

from urllib.parse import unquote, urlsplit

from .contract import GatewayStore
from .memory import MemoryGatewayStore


def gateway_store_at(url: str | None) -> GatewayStore:
    """Beside the queue; in memory when there is no database, or none that outlives the process."""
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
