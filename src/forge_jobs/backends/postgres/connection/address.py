"""Parses ``postgresql://…`` into the server, the schema and the connection options.

Our own options in the query: ``schema`` (default ``forge``), ``pooler`` (``auto``, ``on`` or
``off``), ``listen_url`` (a direct address for notifications where the main one goes through a
pooler).
Everything else is left to the driver: ``host``, ``sslmode``, ``target_session_attrs`` and so on.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from forge_jobs.core.errors import BadUrl
from forge_jobs.kit import redact

DEFAULT_SCHEMA: Final = "forge"
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_POOLER: Final = {"auto": None, "on": True, "off": False}
_OURS: Final = ("schema", "pooler", "listen_url")
_FORM: Final = "write postgresql://user@host/database?schema=forge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A parsed address. ``dsn`` and ``listen_dsn`` may hold passwords: never show them;
    ``location`` is the address without secrets, for messages.

    ``pooled`` True: the address leads to a pooler in transaction mode; None: not known yet.
    """

    dsn: str
    listen_dsn: str
    schema: str
    pooled: bool | None
    location: str
    database: str
    many_hosts: bool

    @property
    def channel(self) -> str:
        """The notification channel of this schema."""
        return f"{self.schema}_wake"

    def at_database(self, name: str) -> str:
        """The same server, another database."""
        parts = urlsplit(self.dsn)
        return urlunsplit(parts._replace(path=f"/{name}"))


def parse(url: str) -> Address:
    """Parse an address. Raises BadUrl naming the part that is wrong, never a password."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise BadUrl(f"the address {redact.text(url)!r} cannot be read: {_FORM}") from error
    if parts.scheme not in ("postgres", "postgresql"):
        raise BadUrl(f"the scheme {parts.scheme!r} is not Postgres: {_FORM}")
    if parts.fragment:
        raise BadUrl("the address has a part after '#': write %23 for a '#' in a password")
    _check_ports(parts)
    options = dict(pairs)
    listen = options.get("listen_url")
    dsn = _without_ours(parts, pairs)
    return Address(
        dsn=dsn,
        listen_dsn=dsn if listen is None else _listen(listen),
        schema=_schema(options.get("schema", DEFAULT_SCHEMA)),
        pooled=_pooled(options.get("pooler", "auto")),
        location=_location(parts, pairs),
        database=unquote(parts.path.lstrip("/")) or unquote(parts.username or ""),
        many_hosts="," in parts.netloc or "," in options.get("host", ""),
    )


def _check_ports(parts: SplitResult) -> None:
    """The message does not repeat a wrong port: it may be the beginning of a password."""
    for host in parts.netloc.rpartition("@")[2].split(","):
        port = host.rpartition("]")[2].partition(":")[2]
        if port and not (port.isdecimal() and 0 < int(port) < 65_536):
            raise BadUrl(
                "the port of the address is not a number from 1 to 65535: in a password write %2F "
                "for '/', %3A for ':' and %40 for '@'"
            )


def _schema(name: str) -> str:
    if _SCHEMA.fullmatch(name) is None or name.startswith("pg_") or name == "information_schema":
        raise BadUrl(
            f"schema={name!r} is not allowed: use 1 to 48 lower-case letters, digits or '_', not "
            "starting with a digit or pg_"
        )
    return name


def _pooled(text: str) -> bool | None:
    try:
        return _POOLER[text]
    except KeyError:
        raise BadUrl(f"pooler={text!r} is unknown: use auto, on or off") from None


def _listen(url: str) -> str:
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise BadUrl("listen_url cannot be read: percent-encode a whole address") from error
    if parts.scheme not in ("postgres", "postgresql"):
        raise BadUrl(f"listen_url is no Postgres address: {_FORM}, percent-encoded")
    return _without_ours(parts, pairs)


def _without_ours(parts: SplitResult, pairs: list[tuple[str, str]]) -> str:
    query = urlencode([(name, value) for name, value in pairs if name not in _OURS])
    return urlunsplit(parts._replace(scheme="postgresql", query=query))


def _location(parts: SplitResult, pairs: list[tuple[str, str]]) -> str:
    """The address without secrets, for messages."""
    shown = [(name, value) for name, value in pairs if name in ("schema", "host")]
    plain = parts._replace(query=urlencode(shown, safe="/"), fragment="")
    return redact.url(urlunsplit(plain))
