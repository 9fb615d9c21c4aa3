"""Reads one entry of bots.yaml, with its token and secrets from the environment."""

import difflib
import ipaddress
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from telegram_gateway.signing import read_signing_secret
from telegram_gateway.update import DAY_S

from .bot import (
    DEFAULT_BACKOFF_S,
    DEFAULT_DEAD_MESSAGE,
    DEFAULT_MAX_WAITING,
    DEFAULT_UPDATES,
    KNOWN_UPDATES,
    Bot,
    CommandSettings,
    HandlerName,
    HttpTarget,
    Mode,
    Networks,
    Ordering,
    SyncFailure,
)
from .durations import go_seconds
from .problems import Problems
from .settings import Environment, Settings

_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_TOKEN: Final = re.compile(r"\d{1,20}:[A-Za-z0-9_-]{30,}")
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{32,256}")
_MAX_SYNC_S: Final = 30.0
_MAX_ASYNC_S: Final = 300.0
_KEYS: Final = (
    "handler", "async", "requireAuth", "http", "command", "mode", "allowedUpdates",
    "maxConnections", "ordering", "overtaking", "maxWaiting", "maxAttempts", "backoff",
    "notifyOnDead", "deadMessage", "syncFailure", "allowedUsers", "allowedChats", "tokenEnv",
    "secretEnv", "apiBase",
)  # fmt: skip
_HTTP_KEYS: Final = ("url", "timeout", "signingSecretEnv", "network")
_COMMAND_KEYS: Final = ("argv", "size", "timeout")
_HANDLER_SECTIONS: Final = {"http": HandlerName.HTTP, "command": HandlerName.COMMAND}
S = TypeVar("S", bound=StrEnum)


def read_bot(
    slug: str, entry: Any, env: Environment, settings: Settings, problems: Problems
) -> Bot | None:
    """Read one entry. None if its slug, handler or token is unusable; problems are collected."""
    where = f"bots.{slug}"
    if not _SLUG.fullmatch(slug):
        problems.add(where, "a slug has 1 to 63 lower-case letters, digits and hyphens")
        return None
    if not isinstance(entry, dict):
        problems.add(where, "has no settings: write at least handler: echo")
        return None
    fields = FieldReader(where, cast("dict[str, Any]", entry), problems)
    fields.check_keys(_KEYS)
    handler = fields.choice("handler", HandlerName, None)
    token, secrets = _credentials(slug, fields, env, problems)
    in_queue = fields.boolean("async", False)
    auth = handler is HandlerName.AUTH
    require_auth = fields.boolean("requireAuth", True) and not auth
    _check_combination(
        fields, handler, in_queue=in_queue, require_auth=require_auth, settings=settings
    )
    http = _http(fields, env, in_queue=in_queue) if handler is HandlerName.HTTP else None
    command = _command(fields) if handler is HandlerName.COMMAND else None
    for name, wanted in _HANDLER_SECTIONS.items():
        if fields.has(name) and handler is not wanted:
            problems.add(f"{where}.{name}", f"belongs to handler: {wanted} only")
    backoff_s, max_attempts = _backoff(fields), fields.integer("maxAttempts", 5, 1, 1_000)
    _check_retries(fields, backoff_s, max_attempts)
    if handler is None or token is None:
        return None
    return Bot(
        slug=slug,
        handler=handler,
        token=token,
        secrets=secrets,
        api_base=(fields.text("apiBase") or settings.api_base).rstrip("/"),
        in_queue=in_queue,
        require_auth=require_auth,
        http=http,
        command=command,
        mode=fields.choice("mode", Mode, Mode.WEBHOOK) or Mode.WEBHOOK,
        allowed_updates=_allowed_updates(fields),
        max_connections=fields.integer("maxConnections", 40, 1, 100),
        ordering=fields.choice("ordering", Ordering, Ordering.SERIAL) or Ordering.SERIAL,
        overtaking=fields.strings("overtaking", ()),
        max_waiting=fields.integer("maxWaiting", DEFAULT_MAX_WAITING, 1, 1_000_000_000),
        max_attempts=max_attempts,
        backoff_s=backoff_s,
        notify_on_dead=fields.boolean("notifyOnDead", True),
        dead_message=fields.text("deadMessage") or DEFAULT_DEAD_MESSAGE,
        sync_failure=fields.choice("syncFailure", SyncFailure, SyncFailure.ACK) or SyncFailure.ACK,
        allowed_users=fields.ids("allowedUsers"),
        allowed_chats=fields.ids("allowedChats"),
    )


class FieldReader:
    """Reads and validates the fields of one mapping; mistakes are added to ``problems``."""

    def __init__(self, where: str, values: Mapping[str, Any], problems: Problems) -> None:
        self.where = where
        self.problems = problems
        self._values = values

    def has(self, name: str) -> bool:
        """Whether the key is present."""
        return name in self._values

    def check_keys(self, names: tuple[str, ...]) -> None:
        """Report every other key: a typo must not silently drop a setting."""
        for name in self._values:
            if name not in names:
                self.add_problem(str(name), f"is unknown; known keys are {', '.join(names)}")

    def add_problem(self, name: str, what: str) -> None:
        """Report one mistake in one field."""
        self.problems.add(f"{self.where}.{name}", what)

    def boolean(self, name: str, default: bool) -> bool:
        """A boolean."""
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.add_problem(name, f"{value!r} must be true or false")
            return default
        return value

    def text(self, name: str) -> str | None:
        """A non-empty string, or None if absent."""
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            self.add_problem(name, "must be text")
            return None
        return value

    def strings(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """A list of strings."""
        value = self._values.get(name)
        if value is None:
            return default
        items = cast("list[Any]", value) if isinstance(value, list) else []
        if not items or not all(isinstance(item, str) and item for item in items):
            self.add_problem(name, "must be a list of strings")
            return default
        return tuple(items)

    def ids(self, name: str) -> frozenset[int]:
        """A list of integers."""
        value = self._values.get(name)
        if value is None:
            return frozenset()
        items: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [None]
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            self.add_problem(name, "must be a list of numbers")
            return frozenset()
        return frozenset(items)

    def integer(self, name: str, default: int, minimum: int, maximum: int) -> int:
        """An integer within bounds."""
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            self.add_problem(
                name, f"{value!r} must be a whole number from {minimum:,} to {maximum:,}"
            )
            return default
        return value

    def choice(self, name: str, choices: type[S], default: S | None) -> S | None:
        """A member of an enumeration; ``default`` None makes the field required."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        try:
            return choices(value)
        except ValueError:
            known = ", ".join(choices)
            problem = "is missing" if value is None else f"{value!r} is unknown"
            self.add_problem(name, f"{problem}: use one of {known}")
            return None

    def duration(self, name: str, default: float, maximum: float) -> float:
        """A duration in Go's syntax, limited to ``maximum`` with a warning."""
        value = self._values.get(name)
        if value is None:
            return default
        found = go_seconds(value) if isinstance(value, str) else None
        if found is None or found <= 0:
            self.add_problem(name, f'{value!r} is not a duration above zero: write "5s" or "500ms"')
            return default
        if found > maximum:
            self.problems.warn(f"{self.where}.{name}", f"is limited to {maximum:g} s")
        return min(found, maximum)

    def section(self, name: str) -> "FieldReader | None":
        """The reader of a nested mapping."""
        value = self._values.get(name)
        if not isinstance(value, dict):
            self.add_problem(name, "is missing: write its settings below it")
            return None
        return FieldReader(f"{self.where}.{name}", cast("dict[str, Any]", value), self.problems)

    def raw(self, name: str) -> Any:
        """The unchecked value."""
        return self._values.get(name)


def _credentials(
    slug: str, fields: FieldReader, env: Environment, problems: Problems
) -> tuple[str | None, tuple[bytes, ...]]:
    stem = f"BOT_{slug.upper().replace('-', '_')}"
    token_name = fields.text("tokenEnv") or f"{stem}_TOKEN"
    secret_name = fields.text("secretEnv") or f"{stem}_SECRET"
    token, secret = env.secret(token_name), env.secret(secret_name)
    if token is None:
        problems.add(fields.where, f"{token_name} is not set: export the token of the bot")
    elif not _TOKEN.fullmatch(token):
        problems.add(fields.where, f"{token_name} is not a bot token: it looks like 123456:ABC…")
        token = None
    if secret is None:
        problems.add(
            fields.where, f"{secret_name} is not set: `telegram-gateway secret new` makes one"
        )
    accepted = [value for value in (secret, env.secret(f"{secret_name}_OLD")) if value is not None]
    for value in accepted:
        if not _SECRET.fullmatch(value):
            problems.add(
                fields.where,
                f"{secret_name} needs 32 to 256 letters, digits, '_' and '-': "
                "`telegram-gateway secret new` makes one",
            )
    return token, tuple(value.encode() for value in accepted)


def _check_combination(
    fields: FieldReader,
    handler: HandlerName | None,
    *,
    in_queue: bool,
    require_auth: bool,
    settings: Settings,
) -> None:
    if in_queue and settings.database_url is None:
        fields.add_problem("async", "needs DATABASE_URL: set it, or write async: false")
    if in_queue and handler is HandlerName.AUTH:
        fields.add_problem("async", "must be false for auth: the queue would store the secret code")
    if handler is HandlerName.COMMAND and not in_queue:
        fields.add_problem("async", "must be true for command: its programs are run by workers")
    needs = require_auth or handler is HandlerName.AUTH
    if needs and settings.auth_secret is None:
        fields.add_problem("requireAuth", "needs AUTH_SECRET: set it, or write requireAuth: false")
    expiring = {"inline_query", "pre_checkout_query"} & set(fields.strings("allowedUpdates", ()))
    if in_queue and expiring:
        fields.problems.warn(
            fields.where, f"{', '.join(sorted(expiring))} in a queue may be answered too late"
        )


def _allowed_updates(fields: FieldReader) -> tuple[str, ...]:
    names = fields.strings("allowedUpdates", DEFAULT_UPDATES)
    for name in names:
        if name in KNOWN_UPDATES:
            continue
        similar = difflib.get_close_matches(name.lower(), KNOWN_UPDATES, n=1, cutoff=0.75)
        if similar:
            fields.add_problem(
                "allowedUpdates", f"{name!r} is not a kind of update: did you mean {similar[0]!r}?"
            )
        else:
            # It may be a kind that is newer than this release.
            fields.problems.warn(
                f"{fields.where}.allowedUpdates",
                f"{name!r} is not a kind of update that is known here; Telegram ignores unknown "
                f"names. Known are {', '.join(KNOWN_UPDATES)}",
            )
    return names


def _http(fields: FieldReader, env: Environment, *, in_queue: bool) -> HttpTarget | None:
    section = fields.section("http")
    if section is None:
        return None
    section.check_keys(_HTTP_KEYS)
    url = section.text("url")
    if url is None:
        section.add_problem("url", "is missing: write the address of the service")
        return None
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_anonymous = parts.username is None and parts.password is None
    except ValueError:
        is_http = is_anonymous = False
    if not is_http or not is_anonymous:
        section.add_problem(
            "url", "must be http:// or https:// with a host, without user and password"
        )
        return None
    maximum = _MAX_ASYNC_S if in_queue else _MAX_SYNC_S
    return HttpTarget(
        url=url,
        timeout_s=section.duration("timeout", 5.0, maximum),
        networks=_networks(section),
        signing=_signing(section, env),
    )


def _signing(section: FieldReader, env: Environment) -> tuple[bytes, ...]:
    name = section.text("signingSecretEnv")
    if name is None:
        return ()
    text = env.secret(name)
    if text is None:
        section.add_problem("signingSecretEnv", f"{name} is not set")
        return ()
    keys = [read_signing_secret(word) for word in text.split()]
    if not all(keys):
        section.add_problem(
            "signingSecretEnv", f"{name} must hold whsec_ and base64 of 24 to 64 bytes"
        )
    return tuple(key for key in keys if key)


def _networks(section: FieldReader) -> Networks | None:
    value = section.raw("network")
    match value:
        case None | "public":
            return None
        case "private":
            return ()
        case list():
            found: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
            for item in cast("list[Any]", value):
                try:
                    found.append(ipaddress.ip_network(str(item)))
                except ValueError:
                    section.add_problem("network", f"{item!r} is not a network: write 10.0.0.0/8")
            if not found:
                section.add_problem(
                    "network", "is an empty list: write public, private or networks"
                )
            return tuple(found) or None
        case _:
            section.add_problem("network", f"{value!r} is unknown: use public, private or a list")
            return None


def _command(fields: FieldReader) -> CommandSettings | None:
    section = fields.section("command")
    if section is None:
        return None
    section.check_keys(_COMMAND_KEYS)
    argv = section.strings("argv", ())
    if not argv:
        section.add_problem(
            "argv", 'is missing: write the program and its arguments, ["node", "bot.js"]'
        )
        return None
    return CommandSettings(
        argv=argv,
        size=section.integer("size", 1, 1, 256),
        timeout_s=section.duration("timeout", 60.0, _MAX_ASYNC_S),
    )


def _backoff(fields: FieldReader) -> tuple[float, ...]:
    strings = fields.strings("backoff", ())
    steps = [go_seconds(text) for text in strings]
    if any(step is None or step <= 0 for step in steps):
        fields.add_problem("backoff", 'must be durations above zero: ["30s", "2m", "10m", "1h"]')
        return DEFAULT_BACKOFF_S
    return tuple(step for step in steps if step is not None) or DEFAULT_BACKOFF_S


def _check_retries(fields: FieldReader, backoff_s: tuple[float, ...], max_attempts: int) -> None:
    steps = max_attempts - 1
    repeated_s = max(steps - len(backoff_s), 0) * backoff_s[-1]
    total_s = sum(backoff_s[:steps]) + repeated_s
    if total_s > DAY_S:
        fields.problems.warn(
            f"{fields.where}.backoff",
            f"the retries take {total_s / 3_600:.1f} h, but an update is given up after 24 h",
        )
