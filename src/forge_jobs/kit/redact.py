"""Secrets out of everything people see."""

import re
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


def url(address: str) -> str:
    """A store address without its password."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return HIDDEN
    if "=" in parts.query:
        parts = parts._replace(query="&".join(map(_option, parts.query.split("&"))))
        address = urlunsplit(parts)
    if parts.password is None:
        return address
    user = f"{parts.username or ''}:{HIDDEN}@"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=user + host))


def _option(pair: str) -> str:
    """An option of an address: what is secret, or an address with a password, is hidden."""
    name, _, value = pair.partition("=")
    plain = unquote(value)
    return f"{name}={HIDDEN}" if looks_secret(name) or text(plain) != plain else pair


def text(message: str) -> str:
    """Any text with passwords in addresses hidden."""
    return _URL_PASSWORD.sub(rf"\g<head>{HIDDEN}", message)


def looks_secret(name: str) -> bool:
    """Whether a field of that name should not be shown."""
    return _SECRET_KEY.search(name) is not None
