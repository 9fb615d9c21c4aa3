"""One entry of bots.yaml, with its token and secrets from the environment."""

import ipaddress
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

from telegram_gateway.signing import read_signing_secret

from .bot import (
    DEFAULT_BACKOFF_S,
    DEFAULT_DEAD_MESSAGE,
    DEFAULT_MAX_WAITING,
    DEFAULT_UPDATES,
    Bot,
    CommandPlan,
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
_HANDLERS_ONLY: Final = {"http": HandlerName.HTTP, "command": HandlerName.COMMAND}
S = TypeVar("S", bound=StrEnum)


def read_bot(
    slug: str, entry: Any, env: Environment, settings: Settings, problems: Problems
) -> Bot | None:
    """The bot of one entry; None when too little of it could be read."""
    where = f"bots.{slug}"
    if not _SLUG.fullmatch(slug):
        problems.add(where, "a slug has 1 to 63 lower-case letters, digits and hyphens")
        return None
    if not isinstance(entry, dict):
        problems.add(where, "has no settings: write at least handler: echo")
        return None
    form = Form(where, cast("dict[str, Any]", entry), problems)
    form.known(_KEYS)
    handler = form.choice("handler", HandlerName, None)
    token, secrets = _credentials(slug, form, env, problems)
    in_queue = form.switch("async", False)
    auth = handler is HandlerName.AUTH
    require_auth = form.switch("requireAuth", True) and not auth
    _check_fit(form, handler, in_queue=in_queue, require_auth=require_auth, settings=settings)
    http = _http(form, env, in_queue=in_queue) if handler is HandlerName.HTTP else None
    command = _command(form) if handler is HandlerName.COMMAND else None
    for name, wanted in _HANDLERS_ONLY.items():
        if form.has(name) and handler is not wanted:
            problems.add(f"{where}.{name}", f"belongs to handler: {wanted} only")
    if handler is None or token is None:
        return None
    return Bot(
        slug=slug,
        handler=handler,
        token=token,
        secrets=secrets,
        api_base=(form.text("apiBase") or settings.api_base).rstrip("/"),
        in_queue=in_queue,
        require_auth=require_auth,
        http=http,
        command=command,
        mode=form.choice("mode", Mode, Mode.WEBHOOK) or Mode.WEBHOOK,
        allowed_updates=form.texts("allowedUpdates", DEFAULT_UPDATES),
        max_connections=form.whole("maxConnections", 40, 1, 100),
        ordering=form.choice("ordering", Ordering, Ordering.SERIAL) or Ordering.SERIAL,
        overtaking=form.texts("overtaking", ()),
        max_waiting=form.whole("maxWaiting", DEFAULT_MAX_WAITING, 1, 1_000_000_000),
        max_attempts=form.whole("maxAttempts", 5, 1, 1_000),
        backoff_s=_backoff(form),
        notify_on_dead=form.switch("notifyOnDead", True),
        dead_message=form.text("deadMessage") or DEFAULT_DEAD_MESSAGE,
        sync_failure=form.choice("syncFailure", SyncFailure, SyncFailure.ACK) or SyncFailure.ACK,
        allowed_users=form.ids("allowedUsers"),
        allowed_chats=form.ids("allowedChats"),
    )


class Form:
    """Reads the fields of one mapping; what is wrong goes to ``problems``."""

    def __init__(self, where: str, values: Mapping[str, Any], problems: Problems) -> None:
        self.where = where
        self.problems = problems
        self._values = values

    def has(self, name: str) -> bool:
        """Whether the key is there."""
        return name in self._values

    def known(self, names: tuple[str, ...]) -> None:
        """Refuse every other key: a typo must not weaken a setting."""
        for name in self._values:
            if name not in names:
                self.refuse(str(name), f"is unknown; known keys are {', '.join(names)}")

    def refuse(self, name: str, what: str) -> None:
        """One mistake in one field."""
        self.problems.add(f"{self.where}.{name}", what)

    def switch(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(name, f"{value!r} must be true or false")
            return default
        return value

    def text(self, name: str) -> str | None:
        """Some text."""
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            self.refuse(name, "must be text")
            return None
        return value

    def texts(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """A list of texts."""
        value = self._values.get(name)
        if value is None:
            return default
        items = cast("list[Any]", value) if isinstance(value, list) else []
        if not items or not all(isinstance(item, str) and item for item in items):
            self.refuse(name, "must be a list of texts")
            return default
        return tuple(items)

    def ids(self, name: str) -> frozenset[int]:
        """A list of whole numbers."""
        value = self._values.get(name)
        if value is None:
            return frozenset()
        items: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [None]
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            self.refuse(name, "must be a list of numbers")
            return frozenset()
        return frozenset(items)

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds."""
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.refuse(name, f"{value!r} must be a whole number from {least:,} to {most:,}")
            return default
        return value

    def choice(self, name: str, choices: type[S], default: S | None) -> S | None:
        """One of a few words; ``default`` None means that there must be one."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        try:
            return choices(value)
        except ValueError:
            known = ", ".join(choices)
            said = "is missing" if value is None else f"{value!r} is unknown"
            self.refuse(name, f"{said}: use one of {known}")
            return None

    def span(self, name: str, default: float, most: float) -> float:
        """A duration in Go's grammar, cut at ``most``."""
        value = self._values.get(name)
        if value is None:
            return default
        found = go_seconds(value) if isinstance(value, str) else None
        if found is None or found <= 0:
            self.refuse(name, f'{value!r} is no duration above zero: write "5s" or "500ms"')
            return default
        if found > most:
            self.problems.warn(f"{self.where}.{name}", f"is cut to {most:g} s")
        return min(found, most)

    def part(self, name: str) -> "Form | None":
        """A mapping inside this one."""
        value = self._values.get(name)
        if not isinstance(value, dict):
            self.refuse(name, "is missing: write its settings below it")
            return None
        return Form(f"{self.where}.{name}", cast("dict[str, Any]", value), self.problems)

    def raw(self, name: str) -> Any:
        """The value as it stands."""
        return self._values.get(name)


def _credentials(
    slug: str, form: Form, env: Environment, problems: Problems
) -> tuple[str | None, tuple[bytes, ...]]:
    stem = f"BOT_{slug.upper().replace('-', '_')}"
    token_name = form.text("tokenEnv") or f"{stem}_TOKEN"
    secret_name = form.text("secretEnv") or f"{stem}_SECRET"
    token, secret = env.secret(token_name), env.secret(secret_name)
    if token is None:
        problems.add(form.where, f"{token_name} is not set: export the token of the bot")
    elif not _TOKEN.fullmatch(token):
        problems.add(form.where, f"{token_name} is no bot token: it looks like 123456:ABC…")
        token = None
    if secret is None:
        problems.add(
            form.where, f"{secret_name} is not set: `telegram-gateway secret new` makes one"
        )
    kept = [value for value in (secret, env.secret(f"{secret_name}_OLD")) if value is not None]
    for value in kept:
        if not _SECRET.fullmatch(value):
            problems.add(
                form.where,
                f"{secret_name} needs 32 to 256 letters, digits, '_' and '-': "
                "`telegram-gateway secret new` makes one",
            )
    return token, tuple(value.encode() for value in kept)


def _check_fit(
    form: Form,
    handler: HandlerName | None,
    *,
    in_queue: bool,
    require_auth: bool,
    settings: Settings,
) -> None:
    if in_queue and settings.database_url is None:
        form.refuse("async", "needs DATABASE_URL: set it, or write async: false")
    if in_queue and handler is HandlerName.AUTH:
        form.refuse("async", "must be false for auth: the queue would store the secret code")
    if handler is HandlerName.COMMAND and not in_queue:
        form.refuse("async", "must be true for command: its programs are run by workers")
    needs = require_auth or handler is HandlerName.AUTH
    if needs and settings.auth_secret is None:
        form.refuse("requireAuth", "needs AUTH_SECRET: set it, or write requireAuth: false")
    expiring = {"inline_query", "pre_checkout_query"} & set(form.texts("allowedUpdates", ()))
    if in_queue and expiring:
        form.problems.warn(
            form.where, f"{', '.join(sorted(expiring))} in a queue may be answered too late"
        )


def _http(form: Form, env: Environment, *, in_queue: bool) -> HttpTarget | None:
    part = form.part("http")
    if part is None:
        return None
    part.known(_HTTP_KEYS)
    url = part.text("url")
    if url is None:
        part.refuse("url", "is missing: write the address of the service")
        return None
    try:
        pieces = urlsplit(url)
        good = pieces.scheme in ("http", "https") and bool(pieces.hostname) and pieces.port != 0
        plain = pieces.username is None and pieces.password is None
    except ValueError:
        good = plain = False
    if not good or not plain:
        part.refuse("url", "must be http:// or https:// with a host, without user and password")
        return None
    most = _MAX_ASYNC_S if in_queue else _MAX_SYNC_S
    return HttpTarget(
        url=url,
        timeout_s=part.span("timeout", 5.0, most),
        networks=_networks(part),
        signing=_signing(part, env),
    )


def _signing(part: Form, env: Environment) -> tuple[bytes, ...]:
    name = part.text("signingSecretEnv")
    if name is None:
        return ()
    text = env.secret(name)
    if text is None:
        part.refuse("signingSecretEnv", f"{name} is not set")
        return ()
    keys = [read_signing_secret(word) for word in text.split()]
    if not all(keys):
        part.refuse("signingSecretEnv", f"{name} must hold whsec_ and base64 of 24 to 64 bytes")
    return tuple(key for key in keys if key)


def _networks(part: Form) -> Networks | None:
    value = part.raw("network")
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
                    part.refuse("network", f"{item!r} is no network: write 10.0.0.0/8")
            if not found:
                part.refuse("network", "is an empty list: write public, private or networks")
            return tuple(found) or None
        case _:
            part.refuse("network", f"{value!r} is unknown: use public, private or a list")
            return None


def _command(form: Form) -> CommandPlan | None:
    part = form.part("command")
    if part is None:
        return None
    part.known(_COMMAND_KEYS)
    argv = part.texts("argv", ())
    if not argv:
        part.refuse("argv", 'is missing: write the program and its arguments, ["node", "bot.js"]')
        return None
    return CommandPlan(
        argv=argv,
        size=part.whole("size", 1, 1, 256),
        timeout_s=part.span("timeout", 60.0, _MAX_ASYNC_S),
    )


def _backoff(form: Form) -> tuple[float, ...]:
    texts = form.texts("backoff", ())
    steps = [go_seconds(text) for text in texts]
    if any(step is None or step <= 0 for step in steps):
        form.refuse("backoff", 'must be durations above zero: ["30s", "2m", "10m", "1h"]')
        return DEFAULT_BACKOFF_S
    return tuple(step for step in steps if step is not None) or DEFAULT_BACKOFF_S
