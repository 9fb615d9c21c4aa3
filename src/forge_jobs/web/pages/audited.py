"""Who changes something from a page acts through here, so that each act leaves a trace."""

from forge_jobs.ops.actions import JobActions
from forge_jobs.ops.audit import StoreAudit
from forge_jobs.ops.declared_limits import LimitActions
from forge_jobs.ops.rate_limits import RateLimitActions
from forge_jobs.ops.schedules import ScheduleActions
from forge_jobs.web.request_context import RequestContext


def trail(desk: RequestContext) -> StoreAudit:
    """Where what people do is kept."""
    return StoreAudit(desk.store)


def actor(desk: RequestContext) -> str:
    """How the audit names this person."""
    return f"web:{desk.identity.name}"


def operator(desk: RequestContext) -> JobActions:
    """For jobs, queues and workers."""
    return JobActions(desk.store, actor=actor(desk), audit=trail(desk), clock=desk.clock)


def timetable(desk: RequestContext) -> ScheduleActions:
    """For schedules."""
    return ScheduleActions(desk.store, actor=actor(desk), audit=trail(desk), clock=desk.clock)


def rates(desk: RequestContext) -> RateLimitActions:
    """For rate limits."""
    return RateLimitActions(desk.store, actor=actor(desk), audit=trail(desk), clock=desk.clock)


def bounds(desk: RequestContext) -> LimitActions:
    """For declared limits and throttle scopes."""
    return LimitActions(desk.store, actor=actor(desk), audit=trail(desk), clock=desk.clock)
