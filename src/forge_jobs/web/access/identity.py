"""Identities and roles: viewers read, operators change, admins also delete."""

from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from forge_jobs.core.errors import BadConfig


class Role(IntEnum):
    """A role includes the rights of the lower ones.

    >>> web.Role.OPERATOR > web.Role.VIEWER
    True
    """

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """The lower-case name."""
        return self.name.lower()


class Identity(Struct, frozen=True):
    """An authenticated user or program; ``name`` goes into the audit.

    >>> web.Identity(name="deploy", role=web.Role.OPERATOR).role.word
    'operator'
    """

    name: str
    role: Role


Identified: TypeAlias = Identity | str | Response | None
Identify: TypeAlias = Callable[[Request], Identified | Awaitable[Identified]]
"""A user's own check: the identity, the name of a role, a response to send instead of the page
(such as a redirect to a login), or None to refuse."""


def parse_role(word: str, *, source: str) -> Role:
    """The role of that name; BadConfig that names ``source``."""
    try:
        return Role[word.strip().upper()]
    except KeyError:
        raise BadConfig(
            f"{source}: there is no role {word!r}: use viewer, operator or admin"
        ) from None
