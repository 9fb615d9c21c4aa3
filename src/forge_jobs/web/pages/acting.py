"""Who changes something from a page acts through here, so that each act leaves a trace."""

from forge_jobs.ops.act import Operator
from forge_jobs.ops.audit import StoreAudit
from forge_jobs.ops.bounds import BoundOperator
from forge_jobs.ops.limits import LimitOperator
from forge_jobs.ops.schedules import Timetable
from forge_jobs.web.desk import Desk


def trail(desk: Desk) -> StoreAudit:
    """Where what people do is kept."""
    return StoreAudit(desk.store)


def actor(desk: Desk) -> str:
    """How the audit names this person."""
    return f"web:{desk.identity.name}"


def operator(desk: Desk) -> Operator:
    """For jobs, queues and workers."""
    return Operator(desk.store, actor=actor(desk), audit=trail(desk), clock=desk.clock)


def timetable(desk: Desk) -> Timetable:
    """For schedules."""
    return Timetable(desk.store, actor=actor(desk), audit=trail(desk), clock=desk.clock)


def rates(desk: Desk) -> LimitOperator:
    """For rate limits."""
    return LimitOperator(desk.store, actor=actor(desk), audit=trail(desk), clock=desk.clock)


def bounds(desk: Desk) -> BoundOperator:
    """For declared limits and throttle scopes."""
    return BoundOperator(desk.store, actor=actor(desk), audit=trail(desk), clock=desk.clock)
