"""Sessions, wrong codes and quarantine: the gateway's own tables, through its own connection.

A reply that belongs to a change is enqueued in the same transaction (``tx=``).
"""

from .contract import Keeping, Reply
from .memory import MemoryKeeping
from .url import keeping_at

__all__ = ["Keeping", "MemoryKeeping", "Reply", "keeping_at"]
