"""One module per system under measurement, all with the same verbs, each run in its own process.

Verbs answer with a plain dictionary. `seed` and `enqueue` put no-op jobs in, `drain` runs them,
`listen` runs a worker that stamps arrivals, `trickle` feeds it, `rows` counts what is kept.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

Announce = Callable[..., None]
Opener = Callable[[Path, str, Announce], object]

OURS = "forge"
OURS_POSTGRES = "forge-postgres"
RAW = "raw-sql"
RAW_STEPS = "raw-steps"
GATEWAY = "gateway"
OWN = frozenset({OURS, OURS_POSTGRES, RAW, RAW_STEPS, GATEWAY})
PACKAGES = {
    "forge": "forge_jobs",
    "huey": "huey",
    "litequeue": "litequeue",
    "persist-queue": "persistqueue",
    "forge-postgres": "forge_jobs",
    "raw-sql": "asyncpg",
    "raw-steps": "asyncpg",
    "pgqueuer": "pgqueuer",
    "procrastinate": "procrastinate",
    "saq": "saq.queue",
    "chancy": "chancy",
    "absurd": "absurd_sdk",
    "dbos": "dbos",
    "gateway": "telegram_gateway.serving",
    "aiogram": "aiogram",
    "python-telegram-bot": "telegram.ext",
}
MODULES = {
    "forge": "benchmarks.systems.forge",
    "huey": "benchmarks.systems.huey",
    "litequeue": "benchmarks.systems.litequeue",
    "persist-queue": "benchmarks.systems.persist_queue",
    "forge-postgres": "benchmarks.systems.forge_postgres",
    "raw-sql": "benchmarks.systems.raw_sql",
    "raw-steps": "benchmarks.systems.raw_steps",
    "pgqueuer": "benchmarks.systems.pgqueuer",
    "procrastinate": "benchmarks.systems.procrastinate",
    "saq": "benchmarks.systems.saq",
    "chancy": "benchmarks.systems.chancy",
    "absurd": "benchmarks.systems.absurd",
    "dbos": "benchmarks.systems.dbos",
    "gateway": "benchmarks.systems.gateway",
    "aiogram": "benchmarks.systems.aiogram_door",
    "python-telegram-bot": "benchmarks.systems.telegram_bot_door",
}


def load(name: str) -> Opener:
    """The opener of a system. Imported late: a child must load only what it measures."""
    module: Any = importlib.import_module(MODULES[name])
    return module.open_system


def installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(PACKAGES[name]) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
