"""Limits: what code declares, what operators change, which gates are closed, how full a bucket is.

This module says who may set the numbers; it enforces none. ``jobs.exchange`` enforces caps, rates
and closed scopes of queues and tasks. Every transition that makes a job due or ends it enforces
limit keys and lanes. Every change of a limit or gate raises the control version.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from msgspec import UNSET, Struct, UnsetType, structs

from forge_jobs.core.errors import NotFound
from forge_jobs.core.instant import Instant
from forge_jobs.core.limits import (
    SCOPE,
    Declared,
    Limit,
    refilled,
    scope_gate,
    with_declared,
    with_operator_change,
)
from forge_jobs.core.throttle import Gate

from .settings import LIMIT, SettingStore, TypedSettings


class LimitChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """New numbers of a limit. UNSET leaves a number as it is, None removes that bound."""

    concurrency: int | UnsetType | None = UNSET
    rate_per_s: float | UnsetType | None = UNSET
    burst: float | UnsetType = UNSET


class LimitBucket(Struct, frozen=True, kw_only=True):
    """How full a limit, a limit key or a lane is.

    ``taken``: how many jobs run under it; for keys and lanes pending ones count as well.
    ``capacity``: how many may; None means any number. ``first``: the id of the job that has the
    lane's slot, else of its oldest live job.
    """

    name: str
    taken: int = 0
    capacity: int | None = None
    first: str | None = None


class Admitted(Struct, frozen=True):
    """What ``admit`` did: how many jobs left their bucket. ``next`` is the ``after`` of the next
    call; None after the last bucket."""

    admitted: int = 0
    next: str | None = None


class LimitStore(Protocol):
    """The contract for gates and limit buckets: what must be atomic with the jobs it bounds."""

    async def gates(self) -> dict[str, Gate]:
        """The gates that were throttled and not reset since, by name: that of a queue, or
        ``core.limits.scope_gate``."""
        ...

    async def open_gate(self, name: str) -> None:
        """Open a gate: its jobs may be claimed at once. Raises the control version."""
        ...

    async def bucket(self, name: str) -> LimitBucket:
        """How full a limit, limit key or lane is."""
        ...

    async def admit(self, *, limit: int, after: str | None = None) -> Admitted:
        """Admit held jobs whose limit bucket has room, in at most ``limit`` buckets by name, after
        the name ``after``. Repairs buckets that no transition has admitted."""
        ...


class Limits:
    """The limits of a store: bounds on jobs beyond the slots of their queue."""

    def __init__(
        self, settings: SettingStore, limits: LimitStore, now: Callable[[], Awaitable[Instant]]
    ) -> None:
        self._settings = TypedSettings(settings, LIMIT, Limit)
        self._limits = limits
        self._now = now
        self.bucket = limits.bucket
        self.admit = limits.admit

    async def publish(self, declared: Sequence[Declared]) -> None:
        """Store the limits that code declares. Numbers set by an operator stay. Nothing is written
        when nothing changes. BadOption for a number outside its range."""
        known = {limit.name: limit for limit in await self._settings.all()}
        changes = {
            one.name: partial(_declared, one)
            for one in declared
            if _declared(one, known.get(one.name), 0) is not None
        }
        if changes:
            await self._settings.update_many(changes)

    async def all(self) -> list[Limit]:
        """All limits, by name, with their tokens as of now."""
        limits, now = await self._settings.all(), await self._now()
        return [refilled(limit, now) for limit in limits]

    async def change(self, name: str, change: LimitChange) -> Limit:
        """Set numbers of a limit on behalf of an operator; code does not overwrite them. Creates
        the limit if there is none. BadOption for a number outside its range."""
        given = structs.asdict(change)
        return await self._settings.update(
            name, lambda known, now: with_operator_change(known, name, given, now)
        )

    async def reset(self, name: str) -> None:
        """Let code set the limit again: the next process that declares it writes its numbers. Until
        then the numbers stay. NotFound for an unknown limit."""

        def released(known: Limit | None, now: Instant) -> Limit:
            if known is None:
                raise NotFound(f"there is no limit {name!r}")
            return structs.replace(known, by_operator=False, updated_at=now)

        await self._settings.update(name, released)

    async def gates(self) -> dict[str, Gate]:
        """The gates of scopes that were throttled and not reset since, by scope."""
        gates = (await self._limits.gates()).items()
        return {name.removeprefix(SCOPE): gate for name, gate in gates if name.startswith(SCOPE)}

    async def open_scope(self, scope: str) -> None:
        """Open the gate of a scope: its jobs may be claimed at once. NotFound for a scope that no
        task declares and that was not closed."""
        declared = any(scope in limit.scopes for limit in await self._settings.all())
        if not declared and scope not in await self.gates():
            raise NotFound(f"no task declares the scope {scope!r}")
        await self._limits.open_gate(scope_gate(scope))


def _declared(declared: Declared, known: Limit | None, now: Instant) -> Limit | None:
    limit = with_declared(known, declared, now)
    return None if limit == known else limit
