"""The gateway's configuration: bots.yaml and the environment, validated together."""

from .bot import Bot, CommandSettings, HandlerName, HttpTarget, Mode, Ordering, SyncFailure
from .load import load
from .problems import BadGatewayConfig
from .settings import Settings

__all__ = [
    "BadGatewayConfig",
    "Bot",
    "CommandSettings",
    "HandlerName",
    "HttpTarget",
    "Mode",
    "Ordering",
    "Settings",
    "SyncFailure",
    "load",
]
