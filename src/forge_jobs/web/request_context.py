"""The context of one request: the store, the identity, and the actions it may perform."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forge_jobs.core.errors import ForgeError
from forge_jobs.ops.actions import JobActions
from forge_jobs.ops.alerts import AlertActions
from forge_jobs.ops.audit import Actor
from forge_jobs.ops.declared_limits import LimitActions
from forge_jobs.ops.error_groups import ErrorGroupActions
from forge_jobs.ops.event_actions import EventActions
from forge_jobs.ops.rate_limits import RateLimitActions
from forge_jobs.ops.saved_views import SavedViewActions
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
    """The role is not sufficient."""

    code = "not_allowed"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What pages, forms and API endpoints get. ``root`` is the mount path of Mission Control,
    ``address`` where the request comes from."""

    forge: "Forge"
    store: "Store"
    identity: Identity
    operations: "Operations"
    chart_cache: "ChartCache"
    read_only: bool = False
    root: str = ""
    address: str | None = None

    @property
    def clock(self) -> "Clock":
        return self.forge.clock

    async def now(self) -> "Instant":
        """The store clock."""
        return await store_now(self.store, self.clock)

    @property
    def job_actions(self) -> JobActions:
        """Actions on jobs, queues and workers; the audit names this identity."""
        return JobActions(self.store, actor=self.audit_actor, clock=self.forge.clock)

    @property
    def event_actions(self) -> EventActions:
        """Sends events and retries jobs from a step."""
        return EventActions(self.store, actor=self.audit_actor, clock=self.forge.clock)

    @property
    def schedule_actions(self) -> ScheduleActions:
        """Reads and changes schedules."""
        return ScheduleActions(self.store, actor=self.audit_actor, clock=self.forge.clock)

    @property
    def limit_actions(self) -> LimitActions:
        """Changes declared limits and throttle scopes."""
        return LimitActions(self.store, actor=self.audit_actor, clock=self.forge.clock)

    @property
    def rate_limit_actions(self) -> RateLimitActions:
        """Changes rate limits."""
        return RateLimitActions(self.store, actor=self.audit_actor, clock=self.forge.clock)

    @property
    def error_group_actions(self) -> ErrorGroupActions:
        """Resolves and reopens error groups."""
        return ErrorGroupActions(self.store, actor=self.audit_actor, clock=self.forge.clock)

    @property
    def saved_view_actions(self) -> SavedViewActions:
        """Saves and deletes views."""
        return SavedViewActions(self.store, actor=self.audit_actor, clock=self.forge.clock)

    @property
    def alert_actions(self) -> AlertActions:
        """Changes and tests alert rules."""
        return AlertActions(self.store, actor=self.audit_actor, clock=self.forge.clock)

    @property
    def audit_actor(self) -> Actor:
        """The identity as the audit records it."""
        return Actor(self.actor, self.identity.role.word, self.address)

    @property
    def actor(self) -> str:
        """The name in the audit."""
        return f"web:{self.identity.name}"

    def may(self, role: Role) -> bool:
        """Whether the identity has at least ``role``; read-only mode allows viewing alone."""
        return self.identity.role >= role and (role is Role.VIEWER or not self.read_only)
