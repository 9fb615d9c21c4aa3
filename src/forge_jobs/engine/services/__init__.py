"""Background work of a worker process: each a tick without a loop, a sleep or a try."""

from .cleanup import CleanupReport, cleanup_once
from .cron import CronTickReport, cron_tick_once
from .reaper import reap_stale_jobs
from .rebalance import rebalance_once
from .roll_up import RollReport, metrics_roll_once

__all__ = [
    "CleanupReport",
    "CronTickReport",
    "RollReport",
    "cleanup_once",
    "cron_tick_once",
    "metrics_roll_once",
    "reap_stale_jobs",
    "rebalance_once",
]
