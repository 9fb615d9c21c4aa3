"""The gateway without Telegram: a fake one, two bots, a service and a chat page, in one command."""

from .stage import Stage

__all__ = ["Stage"]
