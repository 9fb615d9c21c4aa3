"""From an address to a store: which backend, where, with which options.

Backends are imported only when their scheme is asked for, so that nobody pays for a driver that is
not in use.
"""

import threading
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from forge_jobs.core.errors import BadUrl, NotYet
from forge_jobs.kit import redact
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.store.store import Store

_FORMS: Final = (
    "use sqlite:///relative.db, sqlite:////absolute/path.db, postgresql://user@host/database, "
    "memory:// or memory://name"
)
# SQLite's own name for a database of one connection: processes and threads could not share it.
_IN_MEMORY: Final = ":memory:"
_SYNCHRONOUS: Final = ("mixed", "full", "normal")

_named: Final[dict[str, Store]] = {}
_guard: Final = threading.Lock()


def open_store(
    url: str, *, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY
) -> Store:
    """The store behind an address, not opened yet.

    ``memory://`` is a fresh private store on each call; ``memory://name`` is one store per process
    and name (the clock and entropy of the first call stay). Raises BadUrl for an address that
    cannot be used, naming the part, and NotYet for a backend that is still to come.
    """
    try:
        parts = urlsplit(url)
        options = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
    except ValueError as error:
        raise BadUrl(f"the store address {redact.text(url)!r} cannot be read: {_FORMS}") from error
    match parts.scheme:
        case "sqlite":
            return _sqlite(url, parts, options, clock, entropy)
        case "memory":
            return _memory(url, parts, options, clock, entropy)
        case "postgres" | "postgresql":
            from forge_jobs.backends.postgres.store import PostgresStore

            return PostgresStore(url, clock=clock, entropy=entropy)
        case "redis":
            raise NotYet(f"the Redis backend is not part of this version: {_FORMS}")
        case "":
            raise BadUrl(f"the store address {redact.url(url)!r} has no scheme: {_FORMS}")
        case scheme:
            raise BadUrl(f"the scheme {scheme!r} of the store address is unknown: {_FORMS}")


def _sqlite(
    url: str, parts: SplitResult, options: dict[str, str], clock: Clock, entropy: Entropy
) -> Store:
    path = unquote(parts.path.removeprefix("/"))
    if unquote(parts.netloc) == _IN_MEMORY or path.rpartition("/")[2].endswith(_IN_MEMORY):
        raise BadUrl(
            f"{redact.url(url)!r} would name a file {_IN_MEMORY}: write memory:// for tests, or "
            "the path of a file (sqlite:///forge.db)"
        )
    if parts.netloc:
        raise BadUrl(
            f"{redact.url(url)!r} names a host where SQLite has none: write three slashes before a "
            "relative path (sqlite:///forge.db) and four before an absolute one"
        )
    if not path or path.endswith("/") or "\0" in path:
        raise BadUrl(f"{redact.url(url)!r} names no file: write sqlite:///forge.db")
    _only(url, options, parts, allowed=("synchronous",))
    synchronous = options.get("synchronous", "mixed").lower()
    if synchronous not in _SYNCHRONOUS:
        raise BadUrl(f"synchronous={synchronous!r} is unknown: use full, normal, or leave it out")
    from forge_jobs.backends.sqlite.store import SqliteStore

    return SqliteStore(path, clock=clock, entropy=entropy, synchronous=synchronous)


def _memory(
    url: str, parts: SplitResult, options: dict[str, str], clock: Clock, entropy: Entropy
) -> Store:
    from forge_jobs.backends.memory.store import MemoryStore

    if parts.path.strip("/") or parts.password or parts.username:
        raise BadUrl(f"{redact.url(url)!r} is no memory address: write memory:// or memory://name")
    _only(url, options, parts, allowed=())
    if not parts.netloc:
        return MemoryStore(clock, entropy)
    with _guard:
        store = _named.get(parts.netloc)
        if store is None:
            store = _named[parts.netloc] = MemoryStore(clock, entropy)
        return store


def _only(
    url: str, options: dict[str, str], parts: SplitResult, *, allowed: tuple[str, ...]
) -> None:
    if parts.fragment:
        raise BadUrl(f"{redact.url(url)!r} has a part after '#': write %23 for a '#' in a name")
    for name in options:
        if name not in allowed:
            known = ", ".join(allowed) or "it takes none"
            raise BadUrl(
                f"option {name!r} of the store address is unknown for {parts.scheme}: {known}"
            )
