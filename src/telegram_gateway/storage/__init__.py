"""The gateway's own tables: sessions, wrong codes, quarantine and send limits.

They have their own connections. A reply to a change is enqueued in its transaction (``tx=``).
"""

from .contract import GatewayStore, QuarantinedBody, Reply
from .memory import MemoryGatewayStore
from .url import gateway_store_at
from .webhook_cache import CachedGatewayStore, StoreUnavailable

__all__ = [
    "CachedGatewayStore",
    "GatewayStore",
    "MemoryGatewayStore",
    "QuarantinedBody",
    "Reply",
    "StoreUnavailable",
    "gateway_store_at",
]  # fmt: skip
