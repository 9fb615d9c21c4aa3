"""Redaction: hides passwords and secrets in addresses, texts, log lines and JSON values.

``secret_names`` decides by the name beside a value; this module finds names and values. In texts
these are ``name=value``, JSON, reprs, Python source lines, headers, options of a command.
``secret_forms`` finds values that need no name.
"""

import re
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from . import secret_forms
from .secret_names import added_names, is_secret_name, is_secret_pair

__all__ = ["HIDDEN", "is_secret_name", "prose", "text", "url", "value"]

HIDDEN: Final = "***"
# The match begins at the slashes, not at the scheme: otherwise a long word costs quadratic time.
# The password ends at the last "@" of the word, because it may contain "/" and "@"; a port number
# before a path is no password.
_URL_PASSWORD: Final = re.compile(
    r"(?P<head>://(?<=[a-z0-9+.\-]://)[^\s/:@]{0,200}:)(?!\d{1,5}[/?#\s\"'])"
    r"(?:(?:(?!://)[^\s\"'<>]){1,300}|[^\s/@]{1,300})(?=@)",
    re.IGNORECASE,
)
# A cheap first test: a text without one of these holds nothing to hide, and most texts have none.
_SUSPECT: Final = (
    "://", "key", "pass", "token", "secret", "auth", "code", "pin", "sid", "cookie", "session",
    "credential", "pwd", "jwt", "jwk", "otp", "cvc", "cvv", "ssn", "csrf", "xsrf",
    "card", "signature", "phrase", "mnemonic", "kennwort", "sess", *secret_forms.BEGINNINGS,
)  # fmt: skip
# A name and what stands between it and its value. Quotes of JSON inside JSON have backslashes.
_NAME: Final = re.compile(
    r"(?<![\w.\-])(?P<name>(?P<option>--)?[\w.\-]++)(?P<close>[\\\"'\])*`]{0,6})"
    r"(?:"
    r"[ \t]{0,8}(?P<sign>:=|=>|[=!]=|[:=])(?:\s{1,80}(?=[\"'])|[ \t]{0,20})"
    r"|\((?=\s{0,80}[bru]{0,2}[\"'])\s{0,80}"  # set_password("…")
    r"|(?<=[\"']),\s{0,80}(?=[bru]{0,2}[\"'])"  # ("password", "…")
    r"|[ \t]{1,3}(?=[\"'])"  # PASSWORD '…'
    r"|(?(option)[ \t]{1,3}(?=[^\s\-])|(?P<element>>))"  # --password …, <password>…
    r")",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(r"(?P<prefix>[bruf]{0,2})(?P<open>\\{0,3}(?:\"\"\"|'''|\"|'))", re.I)
# A comma ends a value unless more of the value follows it at once: "a,b" but not "a,user=b".
_BARE: Final = re.compile(
    r"(?:(?:basic|bearer|digest)[ \t]{1,3})?"
    r"[^\s\"',;&]+(?:[,;&](?![\w.\-]*+[\"']?[=:])[^\s\"',;&]+)*",
    re.IGNORECASE,
)
_AFTER_ANNOTATION: Final = re.compile(
    r"[ \t]{0,3}(?:\|[ \t]{0,3}[\w.]{1,40})?[ \t]{0,3}=(?!=)[ \t]{0,3}"
)
_HEADER: Final = re.compile(
    r"(?:[a-z][\w\-]{0,30}[ \t]{1,3}(?=[^\s\"',;]))?[^\s\"',;]+(?:\"[^\"\n]{0,500}\")?"
    r"(?:[,;][ \t]{0,3}[^\s\"',;]+(?:\"[^\"\n]{0,500}\")?)*",
    re.IGNORECASE,
)
_BRACKETS: Final = re.compile(r"\\.|[\"'\[\](){}]", re.DOTALL)
_MAX_BRACKETS: Final = 4_000
_MAX_QUOTED: Final = 2_000
_WORD_BEFORE: Final = re.compile(r"([A-Za-z]{2,20})[ ]\Z")
_CLOSERS: Final = ")]}>"


def url(address: str) -> str:
    """A store address with its password and secret options hidden."""
    try:
        parts = urlsplit(address)
        if "=" in parts.query:
            options = "&".join(map(_redacted_option, parts.query.split("&")))
            parts = parts._replace(query=options)
            address = urlunsplit(parts)
        if parts.password is not None:
            user = f"{parts.username or ''}:{HIDDEN}@"
            host = parts.netloc.rpartition("@")[2]
            address = urlunsplit(parts._replace(netloc=user + host))
    except ValueError:
        return HIDDEN
    # a password with "#", "?" or "/" in it is not in the part that urlsplit calls the password
    return text(address)


def _redacted_option(pair: str) -> str:
    """One option of an address. Hides a secret value and an address with a password."""
    name, _, value = pair.partition("=")
    plain = unquote(value)
    return f"{name}={HIDDEN}" if is_secret_name(unquote(name)) or prose(plain) != plain else pair


def text(message: str) -> str:
    """The text with passwords in addresses hidden."""
    return _URL_PASSWORD.sub(rf"\g<head>{HIDDEN}", message) if "://" in message else message


def prose(message: str) -> str:
    """Free text, such as an error message, a traceback or a log line, with passwords in addresses
    hidden, values that follow a secret name (``token=…``) and tokens of a known form."""
    if not _is_suspect(message.lower()):
        return message
    return _without_named_values(secret_forms.hide(text(message), HIDDEN))


def value(data: Any) -> Any:
    """A JSON value for display: fields with secret names are hidden, texts go through ``prose``."""
    if isinstance(data, dict):
        fields = cast("dict[str, Any]", data)
        return {
            name: HIDDEN if is_secret_name(name) else value(inner) for name, inner in fields.items()
        }
    if isinstance(data, list | tuple):
        return [value(item) for item in cast("list[Any]", data)]
    return prose(data) if isinstance(data, str) else data


def _is_suspect(message: str) -> bool:
    if any(part in message for part in _SUSPECT):
        return True
    return any(name[0].removesuffix("s") in message for name in added_names())


def _without_named_values(message: str) -> str:
    """The text with the value after each secret name hidden. Linear: after a value the search goes
    on behind it, and every part of the patterns is bounded."""
    parts: list[str] = []
    done = 0
    position = 0
    while (match := _NAME.search(message, position)) is not None:
        position = max(match.end("name"), position + 1)
        if not _is_secret_here(message, match):
            continue
        begin, end = _value_span(message, match)
        if end > begin:
            parts += (message[done:begin], HIDDEN)
            done = position = end
    if not parts:
        return message
    parts.append(message[done:])
    return "".join(parts)


def _is_secret_here(message: str, match: re.Match[str]) -> bool:
    name, start = match["name"], match.start("name")
    if match["element"] is not None:
        return message[start - 1 : start] == "<" and is_secret_name(name)
    before = _WORD_BEFORE.search(message, max(0, start - 21), start)
    if before is None:
        return is_secret_name(name)
    if before[1].lower() == "unexpected":  # a parser's "unexpected token '<'"
        return False
    return is_secret_name(name) or is_secret_pair(before[1], name)


def _value_span(message: str, match: re.Match[str]) -> tuple[int, int]:
    """Where the value after a name begins and ends, without its quotes."""
    at = match.end()
    if match["element"] is not None:
        end = message.find("<", at)
        return at, len(message) if end < 0 else end
    quoted = _QUOTED.match(message, at)
    if quoted is not None:
        return quoted.end(), _quote_end(message, quoted.end(), quoted["open"])
    if message[at : at + 1] in ("[", "(", "{"):
        return at, _bracket_end(message, at)
    name = match["name"].lower()
    header = match["sign"] == ":" and name.endswith(("authorization", "cookie"))
    bare = (_HEADER if header else _BARE).match(message, at)
    if bare is None:
        return at, at
    if match["sign"] == ":" and (default := _AFTER_ANNOTATION.match(message, bare.end())):
        return at, _default_end(message, default.end())  # password: str = "…"
    return at, _bare_end(message, at, bare.end())


def _bare_end(message: str, start: int, end: int) -> int:
    """Where a value without quotes ends: with ``SecretStr('…')``, without the brackets around it"""
    if message[end - 1] in "([{" and message[end : end + 1] in ("'", '"'):
        return _bracket_end(message, end - 1)
    while end - 1 > start and message[end - 1] in _CLOSERS:
        end -= 1
    return end


def _default_end(message: str, at: int) -> int:
    quoted = _QUOTED.match(message, at)
    if quoted is not None:
        end = _quote_end(message, quoted.end(), quoted["open"])
        return end + len(quoted["open"]) if message.startswith(quoted["open"], end) else end
    bare = _BARE.match(message, at)
    return at if bare is None else _bare_end(message, at, bare.end())


def _quote_end(message: str, start: int, opening: str) -> int:
    """Where a quoted text ends: at a quote behind as many backslashes as the opening one, which has
    some inside JSON within JSON. One that is open for 2,000 characters ends with its line."""
    limit = min(len(message), start + _MAX_QUOTED)
    quote = opening.lstrip("\\")
    backslashes = len(opening) - len(quote)
    at = message.find(quote, start, limit)
    while at >= 0:
        before = message[start:at]
        if len(before) - len(before.rstrip("\\")) == backslashes:
            return at - backslashes
        at = message.find(quote, at + 1, limit)
    line_end = message.find("\n", start)
    return len(message) if line_end < 0 else line_end


def _bracket_end(message: str, start: int) -> int:
    """Where a list, tuple or mapping ends; an open one ends after 4,000 characters."""
    depth = 0
    quote = ""
    limit = min(len(message), start + _MAX_BRACKETS)
    for match in _BRACKETS.finditer(message, start, limit):
        mark = match[0]
        if quote:
            quote = "" if mark == quote else quote
        elif mark in ("'", '"'):
            quote = mark
        elif mark in ("[", "(", "{"):
            depth += 1
        elif mark in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                return match.end()
    return limit
