"""From the address of the queue to the place where the gateway keeps its own tables."""

from urllib.parse import unquote, urlsplit

from .contract import Keeping
from .memory import MemoryKeeping


def keeping_at(url: str | None) -> Keeping:
    """Beside the queue; in memory when there is no database, or none that outlives the process."""
    if url is None:
        return MemoryKeeping()
    parts = urlsplit(url)
    match parts.scheme:
        case "sqlite":
            from .sqlite import SqliteKeeping

            return SqliteKeeping(unquote(parts.path.removeprefix("/")))
        case "postgres" | "postgresql":
            from .postgres import PostgresKeeping

            return PostgresKeeping(url)
        case _:
            return MemoryKeeping()
