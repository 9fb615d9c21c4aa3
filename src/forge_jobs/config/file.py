"""forge.toml: where it is looked for, what it may hold."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

from forge_jobs.core import payload
from forge_jobs.core.errors import BadConfig, Invalid
from forge_jobs.core.job import NewJob
from forge_jobs.core.schedule import CronSpec
from forge_jobs.kit.secret_names import name_words

from .queue_list import DEFAULT_QUEUE_WORKERS, parse_queues

if TYPE_CHECKING:
    from forge_jobs.core.alert_rule import AlertRule

DEFAULT_QUEUE = "default"
FILE_NAME: Final = "forge.toml"
LEVELS_UP: Final = 4
_KEYS: Final = ("url", "password_env", "queues", "schedules", "redact_names", "alerts", "trace_url")
_SCHEDULE_KEYS: Final = (
    "cron", "kind", "payload", "tz", "missed", "missed_limit", "overlap", "jitter", "queue",
    "max_attempts",
)  # fmt: skip
_RELATIVE_SQLITE: Final = "sqlite:///"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """The contents of forge.toml; all empty when there is no file."""

    path: Path | None = None
    url: str | None = None
    password_env: str | None = None
    queues: Mapping[str, int] = field(default_factory=dict[str, int])
    schedules: tuple[CronSpec, ...] = ()
    redact_names: tuple[str, ...] = ()
    alerts: "tuple[AlertRule, ...]" = ()
    trace_url: str | None = None


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
    trace_url = _file_text(path, data, "trace_url")
    return FileSettings(
        path=path,
        url=None if url is None else _relative_to_file(path, url),
        password_env=_file_text(path, data, "password_env"),
        queues=_file_queues(path, data.get("queues", {})),
        schedules=_file_schedules(path, data.get("schedules", {})),
        redact_names=checked_redact_names(
            data.get("redact_names", []), source=f"{path}: redact_names"
        ),
        alerts=_file_alerts(path, data.get("alerts", {})),
        trace_url=None
        if trace_url is None
        else checked_trace_url(trace_url, source=f"{path}: trace_url"),
    )


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
    from forge_jobs.core.schedule_ticks import spec

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


def _file_alerts(path: Path, table: object) -> "tuple[AlertRule, ...]":
    if not table:
        return ()
    # Imported here: programs without alerts do not load time zones.
    from .alert_rules import alert_rules

    return alert_rules(path, table)


def checked_trace_url(url: str, *, source: str) -> str:
    """The address of traces, or BadConfig that names ``source``."""
    if not url.startswith(("http://", "https://")) or "{trace_id}" not in url:
        raise BadConfig(
            f"{source}={url!r} is no address of traces: use https://…/trace/{{trace_id}}"
        )
    return url


def checked_redact_names(names: object, *, source: str) -> tuple[str, ...]:
    """Names to hide beside the built-in ones, or BadConfig that names ``source``."""
    if not isinstance(names, list):
        raise BadConfig(f'{source} must be a list, for example ["iban", "tax_id"]')
    for name in cast("list[object]", names):
        if not isinstance(name, str) or not name_words(name):
            raise BadConfig(f"{source}: {name!r} is no name: write words such as iban or tax_id")
    return tuple(cast("list[str]", names))
