"""``open_storage``: from an address to a store, for use with ``QueueRuntime``."""

from forge_jobs import config
from forge_jobs.backends.url import open_store
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.store.store import Store


def open_storage(
    url: str | None = None, *, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY
) -> Store:
    """The store at ``url``; by default FORGE_URL, DATABASE_URL, forge.toml or ``sqlite:///forge.db``.

    It is not connected yet: ``await storage.open()`` connects, and so does a runtime that uses it.

    >>> async def main() -> int:
    ...     storage = open_storage("memory://")
    ...     await storage.open()
    ...     return len(await storage.queues.all())
    >>> asyncio.run(main())
    0
    """
    return open_store(config.load().url if url is None else url, clock=clock, entropy=entropy)
