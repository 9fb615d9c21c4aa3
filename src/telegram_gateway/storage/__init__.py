"""Sessions, wrong codes and quarantine: the gateway's own tables, through its own connection.

A reply that belongs to a change is enqueued in the same transaction (``tx=``).
"""

from .contract import GatewayStore, Reply
from .memory import MemoryGatewayStore
from .url import gateway_store_at
from .webhook_cache import CachedGatewayStore, StoreAway

__all__ = [
    "CachedGatewayStore",
    "GatewayStore",
    "MemoryGatewayStore",
    "Reply",
    "StoreAway",
    "gateway_store_at",
]  # fmt: skip
