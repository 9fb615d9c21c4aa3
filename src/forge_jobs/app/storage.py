"""From an address to a store, for those who build their own runtime."""

from forge_jobs import config
from forge_jobs.backends.url import open_store
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.store.store import Store


def open_storage(
    url: str | None = None, *, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY
) -> Store:
    """The store behind ``url`` (FORGE_URL, DATABASE_URL, forge.toml or ``sqlite:///forge.db``).

    Not connected yet: ``await storage.open()`` does that, and so does a runtime that starts on it.
    """
    return open_store(config.load().url if url is None else url, clock=clock, entropy=entropy)
