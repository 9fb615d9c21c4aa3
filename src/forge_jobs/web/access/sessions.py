"""Reads session tokens from cookies, and bearer tokens from the Authorization header."""

import re
from typing import Final

from starlette.datastructures import Headers

from forge_jobs.ops.sessions import SESSION_LIFETIME_S

from .identity import Role

__all__ = ["COOKIE", "SESSION_LIFETIME_S", "bearer_token", "role_of_session", "session_tokens"]

COOKIE: Final = "forge_session"
# A browser sends one for each matching path; more than a few do not come from a browser.
_MAX_COOKIES: Final = 4
_SESSION_TOKEN: Final = re.compile(r"(viewer|operator|admin)\.[A-Za-z0-9_-]{43}", re.ASCII)


def session_tokens(headers: Headers) -> list[tuple[Role, str]]:
    """Well-formed session tokens of a request with the roles they claim; not yet verified.

    Several are possible: another Mission Control on the same host uses the same cookie name. More
    than four are all ignored.
    """
    pairs = (part.partition("=") for line in headers.getlist("cookie") for part in line.split(";"))
    values = [value.strip() for name, _, value in pairs if name.strip() == COOKIE]
    if len(values) > _MAX_COOKIES:
        return []
    matches = (_SESSION_TOKEN.fullmatch(value) for value in dict.fromkeys(values))
    return [(Role[match[1].upper()], match[0]) for match in matches if match is not None]


def role_of_session(token: str) -> Role | None:
    """The role of a session token; None for a token of another form."""
    match = _SESSION_TOKEN.fullmatch(token)
    return None if match is None else Role[match[1].upper()]


def bearer_token(headers: Headers) -> str | None:
    """The token of ``Authorization: Bearer``; None without such a header. Empty, and so invalid, if
    the token is missing or there is more than one header."""
    schemes = [line.partition(" ") for line in headers.getlist("authorization")]
    if not any(scheme.lower() == "bearer" for scheme, _, _ in schemes):
        return None
    return schemes[0][2].strip() if len(schemes) == 1 else ""
