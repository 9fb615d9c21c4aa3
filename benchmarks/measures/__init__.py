"""The measures, in the order they run. Each is one module with one class and one docstring."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.bench import Measure
from benchmarks.measures.depth import Depth
from benchmarks.measures.django_drain import DjangoDrain
from benchmarks.measures.django_enqueue import DjangoEnqueue
from benchmarks.measures.django_start import DjangoStart
from benchmarks.measures.door import Door
from benchmarks.measures.drain import Drain
from benchmarks.measures.enqueue import Enqueue
from benchmarks.measures.idle import Idle
from benchmarks.measures.limits import Limits, PostgresLimits
from benchmarks.measures.metrics import Metrics, PostgresMetrics
from benchmarks.measures.pages import Pages, PostgresPages
from benchmarks.measures.pool import Pool
from benchmarks.measures.postgres_depth import PostgresDepth
from benchmarks.measures.postgres_drain import PostgresDrain
from benchmarks.measures.postgres_ended import PostgresEnded
from benchmarks.measures.postgres_enqueue import PostgresEnqueue
from benchmarks.measures.postgres_idle import PostgresIdle
from benchmarks.measures.postgres_recovery import PostgresRecovery
from benchmarks.measures.postgres_snapshot import PostgresSnapshot
from benchmarks.measures.postgres_step_broadcast import PostgresStepBroadcast
from benchmarks.measures.postgres_step_lone import PostgresStepLone
from benchmarks.measures.postgres_step_resume import PostgresStepResume
from benchmarks.measures.postgres_step_send import PostgresStepSend
from benchmarks.measures.postgres_step_sleepers import PostgresStepSleepers
from benchmarks.measures.postgres_steps import PostgresSteps
from benchmarks.measures.postgres_waiting import PostgresWaiting
from benchmarks.measures.start import Start
from benchmarks.measures.steps import Steps
from benchmarks.measures.sync import Sync
from benchmarks.measures.waiting import Waiting

MEASURES: dict[str, Callable[[], Measure]] = {
    "drain": Drain,
    "enqueue": Enqueue,
    "idle": Idle,
    "start": Start,
    "await": Waiting,
    "def": Sync,
    "depth": Depth,
    "metrics": Metrics,
    "limits": Limits,
    "pool": Pool,
    "steps": Steps,
    "pages": Pages,
    "postgres-drain": PostgresDrain,
    "postgres-enqueue": PostgresEnqueue,
    "postgres-idle": PostgresIdle,
    "postgres-depth": PostgresDepth,
    "postgres-metrics": PostgresMetrics,
    "postgres-limits": PostgresLimits,
    "postgres-snapshot": PostgresSnapshot,
    "postgres-await": PostgresWaiting,
    "postgres-recovery": PostgresRecovery,
    "postgres-ended": PostgresEnded,
    "postgres-steps": PostgresSteps,
    "postgres-step-lone": PostgresStepLone,
    "postgres-step-resume": PostgresStepResume,
    "postgres-step-sleepers": PostgresStepSleepers,
    "postgres-step-send": PostgresStepSend,
    "postgres-step-broadcast": PostgresStepBroadcast,
    "postgres-pages": PostgresPages,
    "door": Door,
    "django-drain": DjangoDrain,
    "django-enqueue": DjangoEnqueue,
    "django-start": DjangoStart,
}
# Names that stand for several measures.
GROUPS: dict[str, tuple[str, ...]] = {
    "sqlite": tuple(
        name
        for name in MEASURES
        if not name.startswith(("postgres-", "django-")) and name != "door"
    ),
    "postgres": tuple(name for name in MEASURES if name.startswith("postgres-")),
    "gateway": ("door",),
    "django": tuple(name for name in MEASURES if name.startswith("django-")),
}
