"""What some stores offer besides the contracts: the hot call without an event loop."""

from typing import Protocol, runtime_checkable

from .jobs import Exchange, Exchanged


@runtime_checkable
class DirectJobs(Protocol):
    """The ``jobs`` of a store that can be written on the calling thread. Ask with isinstance."""

    def exchange_sync(self, request: Exchange) -> Exchanged:
        """``JobStore.exchange`` on the calling thread, which may be kept waiting for its turn."""
        ...
