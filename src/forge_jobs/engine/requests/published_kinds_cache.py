"""Keeps what workers have published about kinds for a few seconds, so that enqueueing by kind costs
no query per job."""

import os
from typing import Final

from forge_jobs.core.errors import ForgeError
from forge_jobs.kit.clock import Clock
from forge_jobs.store.enqueuer import StorePort
from forge_jobs.store.published_kinds import PublishedKinds

FRESH_S: Final = 5.0


class PublishedKindsCache:
    """``snapshot`` is the last one read; at most one refresh runs in the background at a time."""

    def __init__(self, port: StorePort, clock: Clock) -> None:
        self._port = port
        self._clock = clock
        self.snapshot = PublishedKinds()
        self._read_at: float | None = None
        # The process whose refresh is under way: a forked child cannot wait for its parent's.
        self._refreshing: int | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether the snapshot is younger than ``FRESH_S``."""
        return self._read_at is not None and 0 <= self._clock.mono() - self._read_at < FRESH_S

    def current(self) -> PublishedKinds:
        """The snapshot as it is, without waiting; a stale one is refreshed in the background.

        For handlers, which must not block their event loop.
        """
        if not self.is_fresh and self._refreshing != os.getpid():
            self._refreshing = os.getpid()
            self._port.spawn(self._refresh_quietly)
        return self.snapshot

    async def refresh(self) -> PublishedKinds:
        """Read a new snapshot now."""
        snapshot = await PublishedKinds.read(await self._port.aready())
        self.snapshot, self._read_at = snapshot, self._clock.mono()
        return snapshot

    async def _refresh_quietly(self) -> None:
        try:
            await self.refresh()
        except ForgeError:
            pass  # the old snapshot is still the best guess; the next caller tries again
        finally:
            self._refreshing = None
