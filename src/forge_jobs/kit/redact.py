"""Redaction: hides passwords and secrets in addresses, texts, log lines and JSON values."""

import re
from typing import Any, cast
from urllib.parse import unquote, urlsplit, urlunsplit

HIDDEN = "***"
_SECRET_KEY = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api_?key|authorization|credential|private_?key|cookie",
    re.IGNORECASE,
)
# The match begins at the slashes, not at the scheme: otherwise a long word costs quadratic time.
_URL_PASSWORD = re.compile(
    r"(?P<head>://(?<=[a-z0-9+.\-]://)[^\s/:@]*:)[^\s/@]+(?=@)", re.IGNORECASE
)


# name=value, name: value, "name": "value", Bearer value. A value ends at a space, quote or comma.
_ASSIGNED = re.compile(
    r"""(?P<head>\b[\w\-]{0,40}(?:pass(?:word|wd|phrase)|secret|token|api[_\-]?key|credential|
    private[_\-]?key|cookie)[\w\-]{0,20}["']?\s{0,3}[:=]\s{0,3}["']?|\bbearer\s{1,3}|
    \bauthorization["']?\s{0,3}[:=]\s{0,3}["']?(?:bearer\s|basic\s)?)[^\s"',;&]+""",
    re.IGNORECASE | re.VERBOSE,
)


# A cheap first test: a text without one of these holds nothing to hide, and most texts have none.
_SUSPECT = re.compile(
    "://|pass|secret|token|key|credential|cookie|bearer|authorization", re.IGNORECASE
)


def url(address: str) -> str:
    """A store address with its password and secret options hidden."""
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
    """One option of an address. Hides a secret value and an address with a password."""
    name, _, value = pair.partition("=")
    plain = unquote(value)
    return f"{name}={HIDDEN}" if is_secret_name(name) or text(plain) != plain else pair


def text(message: str) -> str:
    """The text with passwords in addresses hidden."""
    return _URL_PASSWORD.sub(rf"\g<head>{HIDDEN}", message)


def prose(message: str) -> str:
    """Free text, such as an error message, with passwords in addresses hidden and values that
    follow a secret-looking name (``token=…``)."""
    if _SUSPECT.search(message) is None:
        return message
    return _ASSIGNED.sub(rf"\g<head>{HIDDEN}", text(message))


def value(data: Any) -> Any:
    """A JSON value for display: fields with secret-looking names are hidden, texts go through
    ``prose``."""
    if isinstance(data, dict):
        fields = cast("dict[str, Any]", data)
        return {
            name: HIDDEN if is_secret_name(name) else value(inner) for name, inner in fields.items()
        }
    if isinstance(data, list):
        return [value(item) for item in cast("list[Any]", data)]
    return prose(data) if isinstance(data, str) else data


def is_secret_name(name: str) -> bool:
    """Whether the value of a field with this name must be hidden."""
    return _SECRET_KEY.search(name) is not None
