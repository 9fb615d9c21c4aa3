"""What answers updates: each takes an update and gives the calls to make, and sends nothing.

Failed means try again, Dead means never, Snooze and Throttled mean later without a count.
"""

from .contract import Handler

__all__ = ["Handler"]
