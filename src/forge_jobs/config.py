"""Every setting and its default, in one place."""

from dataclasses import dataclass

from forge_jobs.core.decide import DEFAULT_BUDGETS, Budgets
from forge_jobs.core.retry import DEFAULT_BACKOFF, Backoff

DEFAULT_URL = "sqlite:///forge.db"
DEFAULT_QUEUE = "default"
DEFAULT_QUEUE_WORKERS = 10
DEFAULT_SHUTDOWN_TIMEOUT = 5.0
SLOTS_PER_PROCESS_MOST = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How a worker process behaves. Times are in seconds.

    ``strict`` holds a slot until its outcome is durable. ``prefetch_s`` bounds how much work may be
    claimed ahead; what has not started ``prefetch_hold_s`` after its claim is handed back.
    """

    lease_s: float = 15.0
    grace_s: float = 20.0
    strict: bool = False
    prefetch_s: float = 0.05
    prefetch_hold_s: float = 0.25
    unwritten_most: int = 256
    unwritten_s: float = 0.05
    poll_s: float = 1.0
    control_s: float = 0.5
    retention_minutes_s: float = 30 * 86_400.0
    isolate_after_crashes: int = 2
    child_idle_s: float = 60.0
    child_jobs_most: int = 1_000
    slots_most: int = SLOTS_PER_PROCESS_MOST
    backoff: Backoff = DEFAULT_BACKOFF
    budgets: Budgets = DEFAULT_BUDGETS
