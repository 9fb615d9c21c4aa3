"""All settings with their defaults: environment variables first, then forge.toml."""

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit, urlunsplit

from forge_jobs.core import names, payload
from forge_jobs.core.decide import DEFAULT_BUDGETS, Budgets
from forge_jobs.core.errors import BadConfig, BadName, Invalid
from forge_jobs.core.job import NewJob
from forge_jobs.core.retry import DEFAULT_BACKOFF, Backoff
from forge_jobs.core.schedule import CronSpec

DEFAULT_URL = "sqlite:///forge.db"
DEFAULT_QUEUE = "default"
DEFAULT_QUEUE_WORKERS = 10
DEFAULT_SHUTDOWN_TIMEOUT = 5.0
MAX_SLOTS_PER_PROCESS = 256
MAX_SLOTS = 100_000

FILE_NAME: Final = "forge.toml"
LEVELS_UP: Final = 4
_SCHEMES: Final = frozenset({"sqlite", "memory", "postgres", "postgresql", "redis"})
_KEYS: Final = ("url", "password_env", "queues", "schedules")
_SCHEDULE_KEYS: Final = (
    "cron", "kind", "payload", "tz", "missed", "missed_limit", "overlap", "jitter", "queue",
    "max_attempts",
)  # fmt: skip
_RELATIVE_SQLITE: Final = "sqlite:///"
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
    are never fewer than three. ``shutdown_s`` is how long a slow store gets for the last writes,
    after ``grace_s``.
    ``strict`` holds a slot until the outcome of its job is durable. ``prefetch_s`` bounds how much
    work is claimed before a slot is free; a claim that has not started after ``prefetch_hold_s`` is
    released. ``max_unwritten`` bounds the finishes that a crash may lose (their jobs run again);
    None means 256, or 1,024 where a server writes them while the next jobs run. There, from
    ``min_background_finishes`` successes and as many wanted jobs on, finishes and claims go in two
    concurrent calls. ``metrics`` False (FORGE_METRICS=0) records neither durations nor process
    samples. ``log_jobs`` (FORGE_LOG_JOBS=1) logs the start and end of each job at INFO; they are
    logged at DEBUG otherwise.
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
class FileSettings:
    """The contents of forge.toml; all empty when there is no file."""

    path: Path | None = None
    url: str | None = None
    password_env: str | None = None
    queues: Mapping[str, int] = field(default_factory=dict[str, int])
    schedules: tuple[CronSpec, ...] = ()


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
    return Settings(
        url=_with_password(url, file, env),
        url_from=source,
        queues=queues or file.queues,
        queues_from_env=bool(queues),
    )


def schedules() -> tuple[CronSpec, ...]:
    """The schedules of forge.toml."""
    return read_file(find_file(Path.cwd(), os.environ)).schedules


def auto_migrate(environ: Mapping[str, str] | None = None) -> bool:
    """Whether opening a store may create or upgrade its tables: not with FORGE_AUTO_MIGRATE=0."""
    env = os.environ if environ is None else environ
    return _switch(env, "FORGE_AUTO_MIGRATE")


def queues_from_env(environ: Mapping[str, str] | None = None) -> dict[str, int]:
    """Queue names and slots from FORGE_QUEUES, for example ``mail:20,video``; empty if unset."""
    env = os.environ if environ is None else environ
    text = env.get("FORGE_QUEUES", "")
    return parse_queues(filter(None, map(str.strip, text.split(","))), source="FORGE_QUEUES")


def worker_prefix_from_env(environ: Mapping[str, str] | None = None) -> str | None:
    """FORGE_WORKER_PREFIX, or None."""
    return _text(environ, "FORGE_WORKER_PREFIX")


def worker_version_from_env(environ: Mapping[str, str] | None = None) -> str | None:
    """FORGE_WORKER_VERSION, or None."""
    return _text(environ, "FORGE_WORKER_VERSION")


def worker_id_from_env(environ: Mapping[str, str] | None = None) -> str | None:
    """FORGE_WORKER_ID, or None."""
    return _text(environ, "FORGE_WORKER_ID")


def parse_queues(
    entries: Iterable[str] | Mapping[str, int],
    *,
    source: str = "queues",
    slots: Mapping[str, int] | None = None,
    default: int = DEFAULT_QUEUE_WORKERS,
) -> dict[str, int]:
    """Names and slots from ``["mail:20", "video"]`` or ``{"mail": 20}``.

    A queue without a number gets that of ``slots``, else ``default``. Raises BadConfig that names
    ``source``, the entry and what it should look like.
    """
    if isinstance(entries, Mapping):
        pairs = list(cast("Mapping[str, int]", entries).items())
    else:
        texts = entries.split(",") if isinstance(entries, str) else entries
        pairs = [_entry(text, source, slots or {}, default) for text in texts]
    queues: dict[str, int] = {}
    for name, count in pairs:
        try:
            names.queue_name(name)
        except BadName as error:
            raise BadConfig(f"{source}: {error}") from error
        if name in queues:
            raise BadConfig(f"{source}: queue {name!r} is given twice; name it once")
        queues[name] = slot_count(count, source=f"{source}: queue {name!r}")
    return queues


def slot_count(value: object, *, source: str) -> int:
    """A number of slots, or BadConfig that names ``source``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SLOTS:
        raise BadConfig(f"{source} has slots {value!r}: use a whole number from 0 to {MAX_SLOTS:,}")
    return value


def find_file(folder: Path, environ: Mapping[str, str]) -> Path | None:
    """The nearest forge.toml: here, up to four levels above, then the user's configuration."""
    here = folder.absolute()
    folders = [here, *list(here.parents)[:LEVELS_UP]]
    home = environ.get("XDG_CONFIG_HOME")
    if home:
        folders.append(Path(home) / "forge")
    else:
        try:
            folders.append(Path.home() / ".config" / "forge")
        except RuntimeError:
            pass  # a process without a home directory has no personal settings
    for candidate_folder in folders:
        candidate = candidate_folder / FILE_NAME
        if candidate.is_file():
            return candidate
    return None


def read_file(path: Path | None) -> FileSettings:
    """Read and check a forge.toml. BadConfig names the file, the key and the remedy."""
    if path is None:
        return FileSettings()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path} is not valid TOML: {error}") from error
    for key in data:
        if key not in _KEYS:
            raise BadConfig(f"{path}: unknown key {key!r}; known keys are {', '.join(_KEYS)}")
    url = _file_text(path, data, "url")
    return FileSettings(
        path=path,
        url=None if url is None else _relative_to_file(path, url),
        password_env=_file_text(path, data, "password_env"),
        queues=_file_queues(path, data.get("queues", {})),
        schedules=_file_schedules(path, data.get("schedules", {})),
    )


def _url(env: Mapping[str, str], file: FileSettings) -> tuple[str, str]:
    if url := env.get("FORGE_URL"):
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


def _relative_to_file(path: Path, url: str) -> str:
    # A relative path is relative to the forge.toml that names it, not to the working directory.
    if not url.startswith(_RELATIVE_SQLITE) or url.startswith(_RELATIVE_SQLITE + "/"):
        return url
    rest = url.removeprefix(_RELATIVE_SQLITE)
    return f"{_RELATIVE_SQLITE}{quote(path.parent.as_posix())}/{rest}"


def _file_text(path: Path, data: Mapping[str, Any], key: str) -> str | None:
    value = data.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise BadConfig(f'{path}: {key} must be text, for example {key} = "..."')
    return value


def _file_queues(path: Path, table: object) -> dict[str, int]:
    if not isinstance(table, dict):
        raise BadConfig(f"{path}: queues must be a table, for example [queues] with mail = 20")
    slots: dict[str, int] = {}
    for name, value in cast("dict[str, Any]", table).items():
        if isinstance(value, dict):
            inner = cast("dict[str, Any]", value)
            for key in inner:
                if key != "slots":
                    raise BadConfig(
                        f"{path}: queues.{name}: unknown key {key!r}; the known key is slots"
                    )
            value = inner.get("slots", DEFAULT_QUEUE_WORKERS)
        slots[name] = value
    return parse_queues(slots, source=f"{path}: queues")


def _file_schedules(path: Path, table: object) -> tuple[CronSpec, ...]:
    if not isinstance(table, dict):
        raise BadConfig(f"{path}: schedules must be a table, for example [schedules.nightly]")
    if not table:
        return ()
    # Imported here: programs without schedules do not load the calendar.
    from .core.schedule_ticks import spec

    found: list[CronSpec] = []
    for name, value in cast("dict[str, Any]", table).items():
        where = f"{path}: schedules.{name}"
        if not isinstance(value, dict):
            raise BadConfig(f'{where} must be a table with cron = "0 3 * * *" and kind = "..."')
        inner = cast("dict[str, Any]", value)
        for key in inner:
            if key not in _SCHEDULE_KEYS:
                raise BadConfig(
                    f"{where}: unknown key {key!r}; known keys are {', '.join(_SCHEDULE_KEYS)}"
                )
        for key in ("cron", "kind"):
            if not isinstance(inner.get(key), str):
                raise BadConfig(f'{where}: {key} is missing: write {key} = "..."')
        more = {key: inner[key] for key in inner if key not in ("cron", "kind", "payload")}
        try:
            data = payload.encode(inner.get("payload", {}), what="payload")
            job = NewJob(kind=inner["kind"], queue=DEFAULT_QUEUE, payload=data)
            found.append(spec(job, inner["cron"], name=name, where=where, **more))
        except Invalid as error:
            raise BadConfig(f"{where}: {error}") from error
    return tuple(found)


def _entry(entry: object, source: str, slots: Mapping[str, int], default: int) -> tuple[str, int]:
    if not isinstance(entry, str):
        raise BadConfig(f"{source}: {entry!r} is no queue: write 'mail' or 'mail:20'")
    name, colon, count = entry.strip().partition(":")
    if not colon:
        return name, slots.get(name, default)
    if not (count.isascii() and count.isdigit()):
        raise BadConfig(f"{source}: {entry!r} has no number of slots after ':': write 'mail:20'")
    return name, int(count)


def _text(environ: Mapping[str, str] | None, name: str) -> str | None:
    env = os.environ if environ is None else environ
    return env.get(name) or None


def _switch(env: Mapping[str, str], name: str) -> bool:
    value = env.get(name, "").strip().lower()
    if value in _OFF:
        return False
    if value in _ON:
        return True
    raise BadConfig(f"{name}={value!r} is neither on nor off: use 1 or 0")
