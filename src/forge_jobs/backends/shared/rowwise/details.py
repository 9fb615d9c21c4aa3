"""The rarely changed fields of a job, kept together so that most jobs carry none of them."""

from msgspec import Struct

from forge_jobs.core.instant import Instant
from forge_jobs.core.job import AttemptError


class Details(Struct, omit_defaults=True):
    """Rarely changed fields. A store keeps nothing while all of them have their default."""

    crashes: int = 0
    throttles: int = 0
    throttled_since: Instant | None = None
    missing_since: Instant | None = None
    cancel_at: Instant | None = None
    cancel_reason: str | None = None
    errors: tuple[AttemptError, ...] = ()
    progress: float | None = None
    progress_note: str | None = None
    failed_runs: int = 0
