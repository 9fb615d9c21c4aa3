"""What a page or a route works with: the store, the person at it, and what they may do."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forge_jobs.core.errors import ForgeError
from forge_jobs.ops.actions import JobActions
from forge_jobs.ops.declared_limits import LimitActions
from forge_jobs.ops.rate_limits import RateLimitActions
from forge_jobs.ops.schedules import ScheduleActions
from forge_jobs.ops.store_time import store_now

from .access.identity import Identity, Role

if TYPE_CHECKING:
    from forge_jobs.app import Forge
    from forge_jobs.core.instant import Instant
    from forge_jobs.kit.clock import Clock
    from forge_jobs.ops.actions import Store
    from forge_jobs.ops.chart_cache import ChartCache
    from forge_jobs.ops.operations import Operations


class NotAllowed(ForgeError):
    """The role does not reach."""

    code = "not_allowed"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One person at the controls, for the length of one request; ``root`` is where Mission Control
    is mounted."""

    forge: "Forge"
    store: "Store"
    identity: Identity
    operations: "Operations"
    chronicle: "ChartCache"
    read_only: bool = False
    root: str = ""

    @property
    def clock(self) -> "Clock":
        return self.forge.clock

    async def now(self) -> "Instant":
        """The store's time."""
        return await store_now(self.store, self.clock)

    @property
    def operator(self) -> JobActions:
        """Jobs, queues and workers in the hands of this person."""
        return JobActions(self.store, actor=self.actor, clock=self.forge.clock)

    @property
    def timetable(self) -> ScheduleActions:
        """Schedules in the hands of this person."""
        return ScheduleActions(self.store, actor=self.actor, clock=self.forge.clock)

    @property
    def bound_operator(self) -> LimitActions:
        """Limits and scopes in the hands of this person."""
        return LimitActions(self.store, actor=self.actor, clock=self.forge.clock)

    @property
    def limit_operator(self) -> RateLimitActions:
        """Rate limits in the hands of this person."""
        return RateLimitActions(self.store, actor=self.actor, clock=self.forge.clock)

    @property
    def actor(self) -> str:
        """Who this is, for the audit."""
        return f"web:{self.identity.name}"

    def may(self, role: Role) -> bool:
        """Whether this person may do what ``role`` may; nobody changes anything when read-only."""
        return self.identity.role >= role and (role is Role.VIEWER or not self.read_only)
