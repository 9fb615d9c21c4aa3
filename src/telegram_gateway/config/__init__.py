"""What the gateway is told: bots.yaml and the environment, checked as a whole."""

from .bot import Bot, CommandPlan, HandlerName, HttpTarget, Mode, Ordering, SyncFailure
from .load import load
from .problems import BadGatewayConfig
from .settings import Settings

__all__ = [
    "BadGatewayConfig",
    "Bot",
    "CommandPlan",
    "HandlerName",
    "HttpTarget",
    "Mode",
    "Ordering",
    "Settings",
    "SyncFailure",
    "load",
]
