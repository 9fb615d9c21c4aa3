"""Reads the gateway's environment variables; secrets may come from files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from forge_jobs import DEFAULT_SHUTDOWN_TIMEOUT, EngineSettings, Forge, ForgeError

from .durations import go_seconds
from .problems import Problems

MIN_SECRET: Final = 16
WEBHOOK_PORTS: Final = (443, 80, 88, 8443)
TELEGRAM: Final = "https://api.telegram.org"
_LEVELS: Final = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the process. Times are in seconds."""

    bots_config: Path = Path("bots.yaml")
    database_url: str | None = field(default=None, repr=False)
    done_retention_s: float = 168 * 3_600.0
    dead_retention_s: float | None = None
    stuck_timeout_s: float = 30 * 60.0
    janitor_interval_s: float = 3_600.0
    auth_secret: bytes | None = field(default=None, repr=False)
    auth_session_s: float = 24 * 3_600.0
    allowed_users: frozenset[int] = frozenset()
    host: str = "127.0.0.1"
    port: int = 8080
    public_url: str | None = None
    api_base: str = TELEGRAM
    workers: int = 4
    workers_given: bool = False
    poll_s: float = 1.0
    lease_s: float = EngineSettings().lease_s
    heartbeat_s: float | None = None
    admin_token: str | None = field(default=None, repr=False)
    max_body: int = 1 << 20
    grace_s: float = 20.0
    log_format: str = "text"
    log_level: str = "info"


class Environment:
    """Reads and validates environment variables; mistakes are added to ``problems``."""

    def __init__(self, values: Mapping[str, str], problems: Problems) -> None:
        self._values = values
        self._problems = problems

    def text(self, name: str) -> str | None:
        """A variable, or None when it is unset or blank."""
        return self._values.get(name, "").strip() or None

    def secret(self, name: str) -> str | None:
        """A variable, or the contents of the file that NAME_FILE names."""
        value, path = self.text(name), self.text(f"{name}_FILE")
        if value is not None or path is None:
            return value
        try:
            return Path(path).read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError):
            self._problems.add(f"{name}_FILE", "the file cannot be read: check path and rights")
            return None

    def duration(self, name: str, default: float) -> float:
        """A duration; zero and negative values give the default with a warning."""
        text = self.text(name)
        if text is None:
            return default
        found = go_seconds(text)
        if found is None:
            self._problems.add(
                name, f'{text!r} is not a duration: write "168h", "1h30m" or "500ms"'
            )
            return default
        if found <= 0:
            self._problems.warn(name, f"{text} is not above zero: {default:g} s is used instead")
            return default
        return found

    def integer(self, name: str, default: int, minimum: int, maximum: int) -> int:
        """An integer within bounds."""
        text = self.text(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit()) or not minimum <= int(text) <= maximum:
            self._problems.add(
                name, f"{text!r} is not a whole number from {minimum:,} to {maximum:,}"
            )
            return default
        return int(text)

    def ids(self, name: str) -> frozenset[int]:
        """Integers separated by commas; blanks are ignored."""
        found: set[int] = set()
        for part in filter(None, map(str.strip, (self.text(name) or "").split(","))):
            try:
                found.add(int(part))
            except ValueError:
                self._problems.add(name, f"{part!r} is not a user id: write numbers, 12345,67890")
        return frozenset(found)


def read_settings(env: Environment, problems: Problems) -> Settings:
    """Read every setting that is not about one bot."""
    auth = _read_secret(env, problems, "AUTH_SECRET")
    if env.text("REDIS_URL") is not None:
        problems.warn("REDIS_URL", "is not used: sessions are kept in the database")
    lease_s, heartbeat_s = _read_lease(env, problems)
    host, port = _read_listen(env, problems)
    level = (env.text("LOG_LEVEL") or "info").lower()
    if level not in _LEVELS:
        problems.add("LOG_LEVEL", f"{level!r} is unknown: use {', '.join(_LEVELS)}")
    log_format = (env.text("LOG_FORMAT") or "text").lower()
    if log_format not in ("text", "json"):
        problems.add("LOG_FORMAT", f"{log_format!r} is unknown: use text or json")
    dead = env.text("QUEUE_DEAD_RETENTION")
    api_base = _read_address(env, problems, "TELEGRAM_API_BASE") or TELEGRAM
    return Settings(
        bots_config=Path(env.text("BOTS_CONFIG") or "bots.yaml"),
        database_url=_read_database_url(env, problems),
        done_retention_s=env.duration("QUEUE_DONE_RETENTION", 168 * 3_600.0),
        dead_retention_s=None
        if dead is None
        else env.duration("QUEUE_DEAD_RETENTION", 720 * 3_600.0),
        stuck_timeout_s=env.duration("QUEUE_STUCK_TIMEOUT", 1_800.0),
        janitor_interval_s=env.duration("QUEUE_JANITOR_INTERVAL", 3_600.0),
        auth_secret=None if auth is None else auth.encode(),
        auth_session_s=env.duration("AUTH_SESSION_TTL", 24 * 3_600.0),
        allowed_users=env.ids("ALLOWED_USERS"),
        host=host,
        port=port,
        public_url=_read_public_url(env, problems, api_base),
        api_base=api_base,
        workers=env.integer("WORKERS", 4, 1, 256),
        workers_given=env.text("WORKERS") is not None,
        poll_s=env.duration("WORKER_POLL", 1.0),
        lease_s=lease_s,
        heartbeat_s=heartbeat_s,
        admin_token=_read_admin_token(env, problems),
        max_body=env.integer("WEBHOOK_MAX_BODY", 1 << 20, 1 << 10, 1 << 20),
        grace_s=env.duration("SHUTDOWN_GRACE", max(20.0, DEFAULT_SHUTDOWN_TIMEOUT)),
        log_format=log_format,
        log_level=level,
    )


def _read_database_url(env: Environment, problems: Problems) -> str | None:
    url = env.text("DATABASE_URL")
    if url is None:
        return None
    try:
        # Nothing is opened: an address that cannot be used raises an error here.
        Forge(url)
    except ForgeError as error:
        problems.add("DATABASE_URL", str(error))
    return url


def _read_public_url(env: Environment, problems: Problems, api_base: str) -> str | None:
    url = _read_address(env, problems, "PUBLIC_URL")
    if url is not None and api_base == TELEGRAM:
        parts = urlsplit(url)
        if parts.scheme != "https" or (parts.port or 443) not in WEBHOOK_PORTS:
            problems.add(
                "PUBLIC_URL",
                "must be https:// on port 443, 80, 88 or 8443: Telegram delivers to no other",
            )
    return url


def _read_secret(env: Environment, problems: Problems, name: str) -> str | None:
    secret = env.secret(name)
    if secret is not None and len(secret) < MIN_SECRET:
        problems.add(name, f"is shorter than {MIN_SECRET} characters: choose a longer one")
    return secret


def _read_admin_token(env: Environment, problems: Problems) -> str | None:
    token = _read_secret(env, problems, "ADMIN_TOKEN")
    if token is not None and env.text("DATABASE_URL") is None:
        problems.add("ADMIN_TOKEN", "enables pages about jobs and needs DATABASE_URL: set it, too")
    return token


def _read_lease(env: Environment, problems: Problems) -> tuple[float, float | None]:
    """The lease and the heartbeat interval; defaults are those of forge_jobs."""
    lease_s = env.duration("LEASE", EngineSettings().lease_s)
    if env.text("HEARTBEAT") is None:
        return lease_s, None
    heartbeat_s = env.duration("HEARTBEAT", lease_s / 5)
    if heartbeat_s > lease_s / 3:
        problems.add(
            "HEARTBEAT",
            f"{heartbeat_s:g} s is more than a third of LEASE ({lease_s:g} s): a worker that "
            "misses one heartbeat would count as dead; shorten it, or lengthen LEASE",
        )
    return lease_s, heartbeat_s


def _read_listen(env: Environment, problems: Problems) -> tuple[str, int]:
    text = env.text("LISTEN") or "127.0.0.1:8080"
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) <= 65_535:
        problems.add("LISTEN", f"{text!r} is not an address: write 127.0.0.1:8080")
        return "127.0.0.1", 8080
    return host.strip("[]") or "0.0.0.0", int(port)


def _read_address(env: Environment, problems: Problems, name: str) -> str | None:
    text = env.text(name)
    if text is None:
        return None
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        problems.add(name, "is not a URL: write https://host, without user and password")
        return None
    return text.rstrip("/")
