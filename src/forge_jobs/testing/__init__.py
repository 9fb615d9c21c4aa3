"""Tools for tests: inline mode, controlled time, assertions, and the conformance suite of backends.

For users' tests: ``inline``, ``frozen``, ``moving``, ``assert_enqueued``, ``refute_enqueued``,
``enqueued``, ``reset``, ``areset``, ``Transaction``, ``steps_of``, ``events``.
``forge_jobs.testing.conformance`` is the suite that every backend must pass, and the only part that
needs pytest. Nothing else in the package imports this room.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forge_jobs.testing.time import Time, frozen, moving

    from .assertions import assert_enqueued, enqueued, refute_enqueued
    from .emptying import areset, reset
    from .inline_mode import inline
    from .steps import events, steps_of
    from .transaction import Transaction

__all__ = [
    "Time", "Transaction", "areset", "assert_enqueued", "enqueued", "events", "frozen", "inline",
    "moving", "refute_enqueued", "reset", "steps_of",
]  # fmt: skip

# Imported on first use: the conformance suite needs neither the engine nor Forge.
_HOMES = {
    "assert_enqueued": "assertions",
    "enqueued": "assertions",
    "refute_enqueued": "assertions",
    "areset": "emptying",
    "reset": "emptying",
    "inline": "inline_mode",
    "Time": "time",
    "events": "steps",
    "steps_of": "steps",
    "Transaction": "transaction",
    "frozen": "time",
    "moving": "time",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'forge_jobs.testing' has no attribute {name!r}")
        return getattr(import_module(f"forge_jobs.testing.{_HOMES[name]}"), name)
