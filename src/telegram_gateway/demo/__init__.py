"""The gateway without Telegram: a fake one, two bots, a service and a chat page, in one command."""

from .environment import DemoEnvironment

__all__ = ["DemoEnvironment"]
