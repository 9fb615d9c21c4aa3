"""The demo: a gateway, a fake Telegram, two bots, a service and a chat page in one process."""

from .environment import DemoEnvironment

__all__ = ["DemoEnvironment"]
