"""The contract for declared limits: what code says, what operators change, and how full a lot is.

Limits are enforced by ``jobs.exchange`` (queues and tasks: caps, rates and closed scopes) and by
every move that makes a job due or ends it (keys and lanes); this contract only keeps their numbers.
Every change made here raises the control version that all processes watch.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import UNSET, Struct, UnsetType

from forge_jobs.core.limits import Declared, Limit
from forge_jobs.core.throttle import Gate


class LimitChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """New numbers of a limit; UNSET ones stay, None lifts that bound."""

    concurrency: int | UnsetType | None = UNSET
    rate_per_s: float | UnsetType | None = UNSET
    burst: float | UnsetType = UNSET


class LimitBucket(Struct, frozen=True, kw_only=True):
    """How full a limit, a key or a lane is. ``taken``: jobs that run under it (for keys and lanes
    also those about to), ``capacity``: how many may, None = any number; ``first``: the id of the
    job that the lane waits for."""

    name: str
    taken: int = 0
    capacity: int | None = None
    first: str | None = None


class Admitted(Struct, frozen=True):
    """What a pass over the lots did; ``next`` is where to go on, None after the last lot."""

    admitted: int = 0
    next: str | None = None


class LimitStore(Protocol):
    """What bounds jobs beyond the slots of their queue."""

    async def publish(self, declared: Sequence[Declared]) -> None:
        """Record what code declares. The numbers an operator set stay; nothing is written when
        nothing changes. BadOption for a number outside its range."""
        ...

    async def all(self) -> list[Limit]:
        """All limits, by name, with the starts saved up by now."""
        ...

    async def change(self, name: str, change: LimitChange) -> Limit:
        """An operator's word, which code does not overwrite; makes the limit if there is none.
        BadOption for a number outside its range."""
        ...

    async def reset(self, name: str) -> None:
        """Forget an operator's word: the next process that declares the limit sets it. Until then
        the numbers stay. NotFound for an unknown limit."""
        ...

    async def gates(self) -> dict[str, Gate]:
        """The throttle gates of scopes that were closed lately, by scope."""
        ...

    async def open_scope(self, scope: str) -> None:
        """Forget the throttle of a scope: its jobs are claimed again at once. NotFound for a scope
        that no task declares and that was not closed."""
        ...

    async def bucket(self, name: str) -> LimitBucket:
        """How full a limit, key or lane is."""
        ...

    async def admit(self, *, limit: int, after: str | None = None) -> Admitted:
        """The net below the moves: let held jobs go on whose lot has room, at most ``limit`` lots
        by name, beginning behind ``after``."""
        ...
