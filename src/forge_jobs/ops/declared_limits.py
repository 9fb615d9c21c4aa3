"""Declared limits and throttle scopes: read models and operator actions."""

from datetime import datetime
from typing import Final

from msgspec import UNSET

from forge_jobs.core import names
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Instant, to_datetime
from forge_jobs.core.limits import QUEUE, TASK, Limit, rate_of, rate_text
from forge_jobs.core.throttle import Gate
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.limits import LimitChange
from forge_jobs.store.store import Store

from .audit import Actor, Audit, AuditTrail, field_values
from .store_time import store_now
from .views import View

_AUDITED: Final = ("concurrency", "rate_per_s", "burst", "by_operator")


class LimitView(View, frozen=True, kw_only=True):
    """The limit of a queue or task. With ``per`` the concurrency applies to each value of that
    argument, and ``running`` is the total; ``available`` are the permits of the rate limit."""

    name: str
    concurrency: int | None
    per: str | None
    rate: str | None
    burst: float | None
    available: int | None
    running: int
    scopes: tuple[str, ...]
    by_operator: bool


class ScopeView(View, frozen=True, kw_only=True):
    """A throttle scope: the tasks that declare it, and until when it is closed."""

    scope: str
    tasks: tuple[str, ...]
    closed_until: datetime | None
    closings: int


async def declared_limits(store: Store) -> tuple[LimitView, ...]:
    """All limits that bound concurrency or rate, by name."""
    views: list[LimitView] = []
    for limit in await store.limits.all():
        if limit.concurrency is not None or limit.rate_per_s is not None:
            running = (await store.limits.bucket(limit.name)).taken
            views.append(_limit_view(limit, running))
    return tuple(views)


async def scopes(store: Store, *, clock: Clock = SYSTEM_CLOCK) -> tuple[ScopeView, ...]:
    """All throttle scopes that a task declares or that have a stored gate, by name."""
    gates, tasks = await store.limits.gates(), await _tasks_by_scope(store)
    now = await store_now(store, clock)
    return tuple(
        _scope_view(scope, gates.get(scope), tasks.get(scope, ()), now)
        for scope in sorted({*gates, *tasks})
    )


class LimitActions:
    """Changes limits and scopes of one store on behalf of ``actor``, the name in the audit."""

    def __init__(
        self,
        store: Store,
        *,
        actor: str | Actor,
        audit: Audit | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._trail = AuditTrail(store, actor, audit, clock)

    async def set(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: str | None = None,
        burst: float | None = None,
        lift: bool = False,
    ) -> LimitView:
        """Set bounds of a limit, which code no longer overwrites. ``lift`` removes all bounds."""
        limit_name = check_limit_name(name)
        per_s = None if rate is None else rate_of(rate)[0]
        change = LimitChange(
            concurrency=None if lift else UNSET if concurrency is None else concurrency,
            rate_per_s=None if lift else UNSET if per_s is None else per_s,
            burst=UNSET if burst is None else burst,
        )
        if change == LimitChange():
            raise BadOption("say what to set, for example --concurrency 5 or 50/m")
        before = field_values(await self._limit(limit_name), _AUDITED)
        limit = await self._store.limits.change(limit_name, change)
        detail = {"concurrency": limit.concurrency, "per_s": limit.rate_per_s}
        after = field_values(limit, _AUDITED)
        await self._trail.record("set limit", name, detail, before=before, after=after)
        return _limit_view(limit, (await self._store.limits.bucket(name)).taken)

    async def reset(self, name: str) -> None:
        """Return the limit to what code declares."""
        before = field_values(await self._limit(check_limit_name(name)), _AUDITED)
        await self._store.limits.reset(name)
        after = field_values(await self._limit(name), _AUDITED)
        await self._trail.record("reset limit", name, before=before, after=after)

    async def open_scope(self, scope: str) -> None:
        """Open the gate of a throttled scope: its jobs may start at once."""
        await self._store.limits.open_scope(scope)
        await self._trail.record("open scope", scope)

    async def _limit(self, name: str) -> Limit | None:
        return next((one for one in await self._store.limits.all() if one.name == name), None)


def check_limit_name(name: str) -> str:
    """Return the name of a limit; BadOption for a malformed one."""
    if name.startswith(QUEUE):
        names.queue_name(name.removeprefix(QUEUE))
    elif name.startswith(TASK):
        names.kind_name(name.removeprefix(TASK))
    else:
        raise BadOption(f"{name!r} is no limit: write queue:NAME or task:KIND")
    return name


async def _tasks_by_scope(store: Store) -> dict[str, tuple[str, ...]]:
    tasks_by_scope: dict[str, tuple[str, ...]] = {}
    for limit in await store.limits.all():
        for scope in limit.scopes:
            tasks_by_scope[scope] = (*tasks_by_scope.get(scope, ()), limit.name.removeprefix(TASK))
    return tasks_by_scope


def _scope_view(scope: str, gate: Gate | None, tasks: tuple[str, ...], now: Instant) -> ScopeView:
    until = None
    if gate is not None and gate.until is not None and gate.closed(now):
        until = to_datetime(gate.until)
    closings = 0 if gate is None else gate.count
    return ScopeView(scope=scope, tasks=tasks, closed_until=until, closings=closings)


def _limit_view(limit: Limit, running: int) -> LimitView:
    rated = limit.rate_per_s is not None
    return LimitView(
        name=limit.name,
        concurrency=limit.concurrency,
        per=limit.per,
        rate=None if limit.rate_per_s is None else rate_text(limit.rate_per_s),
        burst=limit.burst if rated else None,
        available=int(limit.tokens + 1e-6) if rated else None,
        running=running,
        scopes=limit.scopes,
        by_operator=limit.by_operator,
    )
