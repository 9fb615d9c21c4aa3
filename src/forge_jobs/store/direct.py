"""The optional contract ``DirectJobs``: the hot call without an event loop."""

from typing import Protocol, runtime_checkable

from .jobs import Exchange, Exchanged


@runtime_checkable
class DirectJobs(Protocol):
    """The ``jobs`` of a store that can be written on the calling thread. Test with isinstance."""

    def exchange_sync(self, request: Exchange) -> Exchanged:
        """``JobStore.exchange`` on the calling thread. May block until other writers are done."""
        ...
