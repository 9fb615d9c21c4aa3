"""All settings with their defaults: environment variables first, then forge.toml."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit, urlunsplit

from forge_jobs.core.decide import DEFAULT_BUDGETS, Budgets
from forge_jobs.core.errors import BadConfig
from forge_jobs.core.retry import DEFAULT_BACKOFF, Backoff
from forge_jobs.core.schedule import CronSpec
from forge_jobs.kit.secret_names import read_added_names_with

from .file import (
    DEFAULT_QUEUE,
    FileSettings,
    checked_redact_names,
    checked_trace_url,
    find_file,
    read_file,
)
from .queue_list import DEFAULT_QUEUE_WORKERS, MAX_SLOTS, parse_queues, slot_count

if TYPE_CHECKING:
    from forge_jobs.core.alert_rule import AlertRule

__all__ = [
    "DEFAULT_HEALTH_HOST",
    "DEFAULT_QUEUE",
    "DEFAULT_QUEUE_WORKERS",
    "DEFAULT_SHUTDOWN_TIMEOUT",
    "DEFAULT_URL",
    "MAX_SLOTS",
    "MAX_SLOTS_PER_PROCESS",
    "EngineSettings",
    "FileSettings",
    "Settings",
    "alert_hosts",
    "alerts",
    "auto_migrate",
    "find_file",
    "health_host_from_env",
    "load",
    "log_jobs_from_env",
    "metrics_from_env",
    "parse_queues",
    "queues_from_env",
    "read_file",
    "redact_names",
    "schedules",
    "slot_count",
    "trace_url",
    "web_url",
    "worker_id_from_env",
    "worker_prefix_from_env",
    "worker_version_from_env",
]

DEFAULT_URL = "sqlite:///forge.db"
DEFAULT_SHUTDOWN_TIMEOUT = 5.0
DEFAULT_HEALTH_HOST = "127.0.0.1"
MAX_SLOTS_PER_PROCESS = 256

_SCHEMES: Final = frozenset({"sqlite", "memory", "postgres", "postgresql", "redis"})
_OFF: Final = frozenset({"0", "false", "no", "off"})
_ON: Final = frozenset({"", "1", "true", "yes", "on"})


def metrics_from_env(environ: Mapping[str, str] | None = None) -> bool:
    """Whether workers record durations and process samples: not with FORGE_METRICS=0."""
    env = os.environ if environ is None else environ
    return _switch(env, "FORGE_METRICS")


def log_jobs_from_env(environ: Mapping[str, str] | None = None) -> bool:
    """Whether workers log every job at INFO: with FORGE_LOG_JOBS=1."""
    env = os.environ if environ is None else environ
    return bool(env.get("FORGE_LOG_JOBS", "").strip()) and _switch(env, "FORGE_LOG_JOBS")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How a worker process behaves. Times are in seconds.

    ``lease_s`` is the process lease. ``heartbeat_s`` None means five heartbeats per lease; there
    are never fewer than three. At a shutdown running jobs get ``grace_s``, and after that a slow
    store gets ``shutdown_s`` for the last writes.
    ``strict`` holds a slot until the outcome of its job is durable. ``prefetch_s`` bounds how much
    work is claimed before a slot is free; a claim that has not started after ``prefetch_hold_s`` is
    released. ``max_unwritten`` bounds the finishes that a crash may lose (their jobs run again);
    None means 256, or 1,024 where a server writes them while the next jobs run. There, from
    ``min_background_finishes`` successes and as many wanted jobs on, finishes and claims go in two
    concurrent calls. No finish waits longer than ``unwritten_s``.
    ``poll_s`` is how often a worker looks for jobs that nothing announced, and ``control_s`` how
    often for what operators changed; ``alert_s`` how often alert rules are looked at.
    ``retention_minutes_s``: how long the metrics of single minutes are kept. A job whose process
    died ``isolate_after_crashes`` times runs in a child process of its own. An idle child ends
    after ``child_idle_s``, a busy one after ``max_child_jobs`` jobs. ``max_slots`` bounds the slots
    of this process. ``backoff`` holds for tasks without ``retry=``; ``budgets`` bounds what is not
    an attempt.
    ``metrics`` False (FORGE_METRICS=0) records neither durations nor process samples. ``log_jobs``
    (FORGE_LOG_JOBS=1) logs the start and end of each job at INFO; they are logged at DEBUG
    otherwise.

    >>> worker = forge.worker(["mail"], settings=EngineSettings(grace_s=30))
    """

    lease_s: float = 15.0
    heartbeat_s: float | None = None
    grace_s: float = 20.0
    shutdown_s: float = 1.5
    strict: bool = False
    prefetch_s: float = 0.05
    prefetch_hold_s: float = 0.25
    max_unwritten: int | None = None
    unwritten_s: float = 0.05
    min_background_finishes: int = 200
    poll_s: float = 1.0
    control_s: float = 0.5
    alert_s: float = 5.0
    retention_minutes_s: float = 30 * 86_400.0
    isolate_after_crashes: int = 2
    child_idle_s: float = 60.0
    max_child_jobs: int = 1_000
    max_slots: int = MAX_SLOTS_PER_PROCESS
    metrics: bool = field(default_factory=metrics_from_env)
    log_jobs: bool = field(default_factory=log_jobs_from_env)
    backoff: Backoff = DEFAULT_BACKOFF
    budgets: Budgets = DEFAULT_BUDGETS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of this process, merged from environment, file and defaults.

    ``url_from`` names where the address comes from. The address may hold a password: print it
    through ``kit.redact`` only.
    """

    url: str
    url_from: str
    queues: Mapping[str, int]
    queues_from_env: bool = False


def load(environ: Mapping[str, str] | None = None, *, folder: Path | None = None) -> Settings:
    """Read the settings of this process. BadConfig names the variable, or the file and key."""
    env = os.environ if environ is None else environ
    file = read_file(find_file(folder or Path.cwd(), env))
    url, source = _url(env, file)
    queues = queues_from_env(env)
    redact_names_from_env(env)  # for its error: reading the names for a text raises none
    return Settings(
        url=_with_password(url, file, env),
        url_from=source,
        queues=queues or file.queues,
        queues_from_env=bool(queues),
    )


def schedules() -> tuple[CronSpec, ...]:
    """The schedules of forge.toml."""
    return read_file(find_file(Path.cwd(), os.environ)).schedules


def alerts() -> "tuple[AlertRule, ...]":
    """The alert rules of forge.toml."""
    return read_file(find_file(Path.cwd(), os.environ)).alerts


def auto_migrate(environ: Mapping[str, str] | None = None) -> bool:
    """Whether opening a store may create or upgrade its tables: not with FORGE_AUTO_MIGRATE=0."""
    env = os.environ if environ is None else environ
    return _switch(env, "FORGE_AUTO_MIGRATE")


def queues_from_env(environ: Mapping[str, str] | None = None) -> dict[str, int]:
    """Queue names and slots from FORGE_QUEUES, for example ``mail:20,video``; empty if unset.

    >>> queues_from_env({"FORGE_QUEUES": "mail:20,video"})
    {'mail': 20, 'video': 10}
    """
    env = os.environ if environ is None else environ
    text = env.get("FORGE_QUEUES", "")
    return parse_queues(filter(None, map(str.strip, text.split(","))), source="FORGE_QUEUES")


def redact_names_from_env(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Names from FORGE_REDACT_NAMES, for example ``iban,tax_id``; empty if unset."""
    env = os.environ if environ is None else environ
    found = filter(None, map(str.strip, env.get("FORGE_REDACT_NAMES", "").split(",")))
    return checked_redact_names(list(found), source="FORGE_REDACT_NAMES")


def redact_names(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Names whose values are hidden beside the built-in ones: of FORGE_REDACT_NAMES and of
    forge.toml. A setting that cannot be read adds none: ``load`` raises its error."""
    env = os.environ if environ is None else environ
    found: tuple[str, ...] = ()
    try:
        found = redact_names_from_env(env)
        return found + read_file(find_file(Path.cwd(), env)).redact_names
    except (BadConfig, OSError):
        return found


def worker_prefix_from_env(environ: Mapping[str, str] | None = None) -> str | None:
    """FORGE_WORKER_PREFIX, or None.

    >>> worker_prefix_from_env({"FORGE_WORKER_PREFIX": "shop"})
    'shop'
    """
    return _text(environ, "FORGE_WORKER_PREFIX")


def worker_version_from_env(environ: Mapping[str, str] | None = None) -> str | None:
    """FORGE_WORKER_VERSION, or None.

    >>> worker_version_from_env({"FORGE_WORKER_VERSION": "2.1"})
    '2.1'
    """
    return _text(environ, "FORGE_WORKER_VERSION")


def worker_id_from_env(environ: Mapping[str, str] | None = None) -> str | None:
    """FORGE_WORKER_ID, or None.

    >>> worker_id_from_env({"FORGE_WORKER_ID": "7"})
    '7'
    """
    return _text(environ, "FORGE_WORKER_ID")


def alert_hosts(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """FORGE_ALERT_HOSTS: hosts with private addresses that messages of alerts may go to."""
    env = os.environ if environ is None else environ
    return tuple(filter(None, map(str.strip, env.get("FORGE_ALERT_HOSTS", "").split(","))))


def web_url(environ: Mapping[str, str] | None = None) -> str | None:
    """FORGE_WEB_URL: where people reach Mission Control, for links to it; None if unset."""
    value = _text(environ, "FORGE_WEB_URL")
    if value is None:
        return None
    if not value.startswith(("http://", "https://")):
        raise BadConfig(f"FORGE_WEB_URL={value!r} is no address: use https://host/path")
    return value.rstrip("/")


def trace_url(environ: Mapping[str, str] | None = None) -> str | None:
    """FORGE_TRACE_URL, else ``trace_url`` of forge.toml: the address of a trace, with
    ``{trace_id}`` where its id belongs; None if unset."""
    env = os.environ if environ is None else environ
    value = _text(environ, "FORGE_TRACE_URL")
    if value is not None:
        return checked_trace_url(value, source="FORGE_TRACE_URL")
    return read_file(find_file(Path.cwd(), env)).trace_url


def health_host_from_env(environ: Mapping[str, str] | None = None) -> str:
    """FORGE_HEALTH_HOST: where ``--health-port`` listens; loopback by default."""
    return _text(environ, "FORGE_HEALTH_HOST") or DEFAULT_HEALTH_HOST


def _url(env: Mapping[str, str], file: FileSettings) -> tuple[str, str]:
    if url := env.get("FORGE_URL", "").strip():
        return url, "FORGE_URL"
    # Other tools use DATABASE_URL too: an address with a scheme of theirs is ignored.
    url = env.get("DATABASE_URL")
    if url and url.partition("://")[0].lower() in _SCHEMES:
        return url, "DATABASE_URL"
    if file.url is not None:
        return file.url, f"url in {file.path}"
    return DEFAULT_URL, "default"


def _with_password(url: str, file: FileSettings, env: Mapping[str, str]) -> str:
    if file.password_env is None:
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # opening it raises an error that says what is wrong
    if parts.password is not None or not parts.hostname:
        return url
    where = f"{file.path}: password_env = {file.password_env!r}"
    if not parts.username:
        raise BadConfig(f"{where}, but the address names no user: write scheme://user@host/name")
    password = env.get(file.password_env)
    if password is None:
        raise BadConfig(f"{where}, but that environment variable is not set: export it")
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{parts.username}:{quote(password, safe='')}@{host}"
    return urlunsplit(parts._replace(netloc=netloc))


def _text(environ: Mapping[str, str] | None, name: str) -> str | None:
    env = os.environ if environ is None else environ
    return env.get(name, "").strip() or None


def _switch(env: Mapping[str, str], name: str) -> bool:
    value = env.get(name, "").strip().lower()
    if value in _OFF:
        return False
    if value in _ON:
        return True
    raise BadConfig(f"{name}={value!r} is neither on nor off: use 1 or 0")


# Each process that formats a log line or shows a job hides these names, whatever it opened first.
read_added_names_with(redact_names)
