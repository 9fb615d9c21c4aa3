"""The cookie that stands for a log-in, and the header that carries a token."""

import re
from typing import Final

from starlette.datastructures import Headers

from forge_jobs.ops.sessions import LIFE_S

from .identity import Role

__all__ = ["COOKIE", "LIFE_S", "bearer_token", "sessions_given"]

COOKIE: Final = "forge_session"
# A browser sends one for each path that matches; more than a few are no browser's.
_MAX_GIVEN: Final = 4
_TEXT: Final = re.compile(r"(viewer|operator|admin)\.[A-Za-z0-9_-]{43}", re.ASCII)


def sessions_given(headers: Headers) -> list[tuple[Role, str]]:
    """The session texts of a request with the roles they claim, well formed but not yet known.

    Several are possible: another Mission Control of the same host has a cookie of the same name.
    Beyond four nothing is taken.
    """
    pairs = (part.partition("=") for line in headers.getlist("cookie") for part in line.split(";"))
    texts = [text.strip() for name, _, text in pairs if name.strip() == COOKIE]
    if len(texts) > _MAX_GIVEN:
        return []
    matches = (_TEXT.fullmatch(text) for text in dict.fromkeys(texts))
    return [(Role[match[1].upper()], match[0]) for match in matches if match is not None]


def bearer_token(headers: Headers) -> str | None:
    """The token of ``Authorization: Bearer``; None without such a header. Empty, and so nobody's,
    when it is missing or there is more than one header."""
    given = [line.partition(" ") for line in headers.getlist("authorization")]
    if not any(scheme.lower() == "bearer" for scheme, _, _ in given):
        return None
    return given[0][2].strip() if len(given) == 1 else ""
