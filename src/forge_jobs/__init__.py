"""Durable background jobs for Python: the public names, nothing else.

Each name is imported when it is first used, so that a producer pays for no more than it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forge_jobs.app import Forge, open_storage
    from forge_jobs.client.bulk_result import BulkResult
    from forge_jobs.client.job import Job
    from forge_jobs.client.job_history import StoredStep
    from forge_jobs.client.task import AsyncTask, DefTask, Task
    from forge_jobs.config import (
        DEFAULT_QUEUE_WORKERS,
        DEFAULT_SHUTDOWN_TIMEOUT,
        EngineSettings,
        queues_from_env,
        worker_id_from_env,
        worker_prefix_from_env,
        worker_version_from_env,
    )
    from forge_jobs.core.dead_letter import DeadJob
    from forge_jobs.core.errors import (
        BadAppPath,
        BadArguments,
        BadConfig,
        BadCron,
        BadDuration,
        BadName,
        BadOption,
        BadPayload,
        BadStep,
        BadTime,
        BadUrl,
        Closed,
        Conflict,
        Corrupt,
        ForgeError,
        Full,
        Invalid,
        JobFailed,
        KeyTaken,
        KindTaken,
        LeaseLost,
        NoQueues,
        NotFound,
        NotWritable,
        NotYet,
        PayloadTooLarge,
        Refused,
        ResultTimeout,
        SchemaMismatch,
        ServerTooOld,
        StoreError,
        StoreReplaced,
        Unavailable,
        Unknown,
        UnknownKind,
        WaitTimeout,
    )
    from forge_jobs.core.events import SentEvent
    from forge_jobs.core.job import JobRecord, NewJob
    from forge_jobs.core.outcome import Dead, Done, Failed, JobOutcome, Snooze, Throttled
    from forge_jobs.core.retry import Retry
    from forge_jobs.core.schedule import CronSpec
    from forge_jobs.core.status import JobStatus
    from forge_jobs.core.webhook import verify_webhook
    from forge_jobs.engine.runtime import (
        EnqueueOutcome,
        EnqueueRequest,
        FinalizeOutcome,
        QueueHandle,
        QueueRuntime,
    )
    from forge_jobs.engine.services import (
        CleanupReport,
        CronTickReport,
        RollReport,
        cleanup_once,
        cron_tick_once,
        metrics_roll_once,
        reap_stale_jobs,
        rebalance_once,
    )
    from forge_jobs.handlers import (
        CMD_EXEC_KIND,
        NOOP_ECHO_KIND,
        WORKER_POOL_KIND,
        CmdExecHandler,
        CmdExecPayload,
        NoopEcho,
        WorkerPoolConfig,
        WorkerPoolHandler,
    )
    from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
    from forge_jobs.kit.entropy import SECRET_ENTROPY, SYSTEM_ENTROPY, Entropy
    from forge_jobs.kit.log import JobLogFilter
    from forge_jobs.ops.prometheus import prometheus_text
    from forge_jobs.pull import JobQueue
    from forge_jobs.store.queues import QueueChange

    from .engine.requests.declared_schedules import ensure_schedules
    from .engine.requests.routing import DefaultRouter, KindPrefixRouter, Router
    from .engine.running.context import Context, JobCtx
    from .engine.running.rate_limit import (
        DEFAULT_RATE_LIMIT_SCOPES,
        AcquireOutcome,
        RateLimit,
        RateLimiter,
        ensure_default_rate_limits,
    )
    from .engine.running.registry import HandlerRegistry, JobHandler
    from .engine.steps.waiting import ReceivedEvent

    __version__: str

_NAMES = {
    "app": "Forge open_storage",
    "client.bulk_result": "BulkResult",
    "client.job": "Job",
    "client.job_history": "StoredStep",
    "client.task": "AsyncTask DefTask Task",
    "config": (
        "DEFAULT_QUEUE_WORKERS DEFAULT_SHUTDOWN_TIMEOUT EngineSettings queues_from_env "
        "worker_id_from_env worker_prefix_from_env worker_version_from_env"
    ),
    "core.dead_letter": "DeadJob",
    "core.errors": (
        "BadAppPath BadArguments BadConfig BadCron BadDuration BadName BadOption BadPayload "
        "BadStep BadTime BadUrl Closed Conflict Corrupt ForgeError Full Invalid JobFailed KeyTaken "
        "KindTaken LeaseLost NoQueues NotFound NotWritable NotYet PayloadTooLarge Refused "
        "ResultTimeout SchemaMismatch ServerTooOld StoreError StoreReplaced Unavailable Unknown "
        "UnknownKind WaitTimeout"
    ),
    "core.events": "SentEvent",
    "core.job": "JobRecord NewJob",
    "core.outcome": "Dead Done Failed JobOutcome Snooze Throttled",
    "core.retry": "Retry",
    "core.schedule": "CronSpec",
    "core.status": "JobStatus",
    "core.webhook": "verify_webhook",
    "engine.running.context": "Context JobCtx",
    "engine.requests.declared_schedules": "ensure_schedules",
    "engine.running.rate_limit": (
        "DEFAULT_RATE_LIMIT_SCOPES AcquireOutcome RateLimit RateLimiter ensure_default_rate_limits"
    ),
    "engine.running.registry": "HandlerRegistry JobHandler",
    "engine.requests.routing": "DefaultRouter KindPrefixRouter Router",
    "engine.steps.waiting": "ReceivedEvent",
    "engine.runtime": "EnqueueOutcome EnqueueRequest FinalizeOutcome QueueHandle QueueRuntime",
    "engine.services": (
        "CleanupReport CronTickReport RollReport cleanup_once cron_tick_once metrics_roll_once "
        "reap_stale_jobs rebalance_once"
    ),
    "kit.clock": "SYSTEM_CLOCK Clock",
    "kit.entropy": "SECRET_ENTROPY SYSTEM_ENTROPY Entropy",
    "kit.log": "JobLogFilter",
    "ops.prometheus": "prometheus_text",
    "pull": "JobQueue",
    "store.queues": "QueueChange",
    "handlers": (
        "CMD_EXEC_KIND NOOP_ECHO_KIND WORKER_POOL_KIND CmdExecHandler CmdExecPayload NoopEcho "
        "WorkerPoolConfig WorkerPoolHandler"
    ),
}
_HOMES = {name: home for home, listed in _NAMES.items() for name in listed.split()}

__all__ = [
    "CMD_EXEC_KIND",
    "DEFAULT_QUEUE_WORKERS",
    "DEFAULT_RATE_LIMIT_SCOPES",
    "DEFAULT_SHUTDOWN_TIMEOUT",
    "NOOP_ECHO_KIND",
    "SECRET_ENTROPY",
    "SYSTEM_CLOCK",
    "SYSTEM_ENTROPY",
    "WORKER_POOL_KIND",
    "AcquireOutcome",
    "AsyncTask",
    "BadAppPath",
    "BadArguments",
    "BadConfig",
    "BadCron",
    "BadDuration",
    "BadName",
    "BadOption",
    "BadPayload",
    "BadStep",
    "BadTime",
    "BadUrl",
    "BulkResult",
    "CleanupReport",
    "Clock",
    "Closed",
    "CmdExecHandler",
    "CmdExecPayload",
    "Conflict",
    "Context",
    "Corrupt",
    "CronSpec",
    "CronTickReport",
    "Dead",
    "DeadJob",
    "DefTask",
    "DefaultRouter",
    "Done",
    "EngineSettings",
    "EnqueueOutcome",
    "EnqueueRequest",
    "Entropy",
    "Failed",
    "FinalizeOutcome",
    "Forge",
    "ForgeError",
    "Full",
    "HandlerRegistry",
    "Invalid",
    "Job",
    "JobCtx",
    "JobFailed",
    "JobHandler",
    "JobLogFilter",
    "JobOutcome",
    "JobQueue",
    "JobRecord",
    "JobStatus",
    "KeyTaken",
    "KindPrefixRouter",
    "KindTaken",
    "LeaseLost",
    "NewJob",
    "NoQueues",
    "NoopEcho",
    "NotFound",
    "NotWritable",
    "NotYet",
    "PayloadTooLarge",
    "QueueChange",
    "QueueHandle",
    "QueueRuntime",
    "RateLimit",
    "RateLimiter",
    "ReceivedEvent",
    "Refused",
    "ResultTimeout",
    "Retry",
    "RollReport",
    "Router",
    "SchemaMismatch",
    "SentEvent",
    "ServerTooOld",
    "Snooze",
    "StoreError",
    "StoreReplaced",
    "StoredStep",
    "Task",
    "Throttled",
    "Unavailable",
    "Unknown",
    "UnknownKind",
    "WaitTimeout",
    "WorkerPoolConfig",
    "WorkerPoolHandler",
    "cleanup_once",
    "cron_tick_once",
    "ensure_default_rate_limits",
    "ensure_schedules",
    "metrics_roll_once",
    "open_storage",
    "prometheus_text",
    "queues_from_env",
    "reap_stale_jobs",
    "rebalance_once",
    "verify_webhook",
    "worker_id_from_env",
    "worker_prefix_from_env",
    "worker_version_from_env",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            value = getattr(import_module(f"forge_jobs.{_HOMES[name]}"), name)
        elif name == "__version__":
            value = import_module("importlib.metadata").version("forge-jobs")
        else:
            raise AttributeError(f"module 'forge_jobs' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
