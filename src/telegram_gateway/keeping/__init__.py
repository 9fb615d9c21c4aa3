"""Sessions, wrong codes and quarantine: the gateway's own tables, through its own connection.

A reply that belongs to a change is enqueued in the same transaction (``tx=``).
"""

from .at_the_door import KeepingAtTheDoor, StoreAway
from .contract import Keeping, Reply
from .memory import MemoryKeeping
from .url import keeping_at

__all__ = [
    "Keeping", "KeepingAtTheDoor", "MemoryKeeping", "Reply", "StoreAway", "keeping_at",
]  # fmt: skip
