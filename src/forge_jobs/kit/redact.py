"""Secrets out of everything people see."""

import re
from typing import Any, cast
from urllib.parse import unquote, urlsplit, urlunsplit

HIDDEN = "***"
_SECRET_KEY = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api_?key|authorization|credential|private_?key|cookie",
    re.IGNORECASE,
)
# Begins with the slashes, not with the scheme: a long word must not cost its length squared.
_URL_PASSWORD = re.compile(
    r"(?P<head>://(?<=[a-z0-9+.\-]://)[^\s/:@]*:)[^\s/@]+(?=@)", re.IGNORECASE
)


# name=value, name: value, "name": "value", Bearer value; a value ends at a blank, quote or comma.
_ASSIGNED = re.compile(
    r"""(?P<head>\b[\w\-]{0,40}(?:pass(?:word|wd|phrase)|secret|token|api[_\-]?key|credential|
    private[_\-]?key|cookie)[\w\-]{0,20}["']?\s{0,3}[:=]\s{0,3}["']?|\bbearer\s{1,3}|
    \bauthorization["']?\s{0,3}[:=]\s{0,3}["']?(?:bearer\s|basic\s)?)[^\s"',;&]+""",
    re.IGNORECASE | re.VERBOSE,
)


# Without one of these there is nothing to hide; most texts have none.
_SUSPECT = re.compile(
    "://|pass|secret|token|key|credential|cookie|bearer|authorization", re.IGNORECASE
)


def url(address: str) -> str:
    """A store address without its password."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return HIDDEN
    if "=" in parts.query:
        parts = parts._replace(query="&".join(map(_redacted_option, parts.query.split("&"))))
        address = urlunsplit(parts)
    if parts.password is None:
        return address
    user = f"{parts.username or ''}:{HIDDEN}@"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=user + host))


def _redacted_option(pair: str) -> str:
    """An option of an address: what is secret, or an address with a password, is hidden."""
    name, _, value = pair.partition("=")
    plain = unquote(value)
    return f"{name}={HIDDEN}" if looks_secret(name) or text(plain) != plain else pair


def text(message: str) -> str:
    """Any text with passwords in addresses hidden."""
    return _URL_PASSWORD.sub(rf"\g<head>{HIDDEN}", message)


def prose(message: str) -> str:
    """What a program wrote for people: passwords in addresses hidden, and what is given to a
    secret-looking name."""
    if _SUSPECT.search(message) is None:
        return message
    return _ASSIGNED.sub(rf"\g<head>{HIDDEN}", text(message))


def value(data: Any) -> Any:
    """JSON as people see it: what has a secret-looking name is hidden, texts are ``prose``."""
    if isinstance(data, dict):
        fields = cast("dict[str, Any]", data)
        return {
            name: HIDDEN if looks_secret(name) else value(inner) for name, inner in fields.items()
        }
    if isinstance(data, list):
        return [value(item) for item in cast("list[Any]", data)]
    return prose(data) if isinstance(data, str) else data


def looks_secret(name: str) -> bool:
    """Whether a field of that name should not be shown."""
    return _SECRET_KEY.search(name) is not None
