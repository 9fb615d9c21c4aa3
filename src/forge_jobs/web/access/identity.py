"""Identities and roles: a viewer looks, an operator steers, an admin may also destroy."""

from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct
from starlette.requests import Request

from forge_jobs.core.errors import BadConfig


class Role(IntEnum):
    """Each role may do what the lower ones may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """The role as people write it."""
        return self.name.lower()


class Identity(Struct, frozen=True):
    """Somebody who was let in; ``name`` goes into the audit."""

    name: str
    role: Role


Identify: TypeAlias = Callable[[Request], Identity | str | Awaitable[Identity | str | None] | None]
"""A user's own check: the identity, the name of a role, or None to refuse."""


def role_named(word: str, *, source: str) -> Role:
    """The role of that name; BadConfig that names ``source``."""
    try:
        return Role[word.strip().upper()]
    except KeyError:
        raise BadConfig(
            f"{source}: there is no role {word!r}: use viewer, operator or admin"
        ) from None
