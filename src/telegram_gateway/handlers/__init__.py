"""The handlers: each gets an update and returns the Bot API calls to make; it sends nothing itself.

They raise outcomes of forge_jobs: Failed is retried, Dead is not; Snooze and Throttled delay the
update without spending an attempt.
"""

from .contract import Handler

__all__ = ["Handler"]
