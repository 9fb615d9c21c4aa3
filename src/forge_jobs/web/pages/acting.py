"""Who changes something from a page acts through here, so that each act leaves a trace."""

from collections import deque
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from forge_jobs.ops.act import Operator
from forge_jobs.ops.audit import AuditEntry, LogAudit
from forge_jobs.ops.bounds import BoundOperator
from forge_jobs.ops.limits import LimitOperator
from forge_jobs.ops.schedules import Timetable
from forge_jobs.web.desk import Desk

if TYPE_CHECKING:
    from forge_jobs.app import Forge

KEPT: Final = 1_000


class Trail(LogAudit):
    """The newest entries of this process, beside the log line of each."""

    def __init__(self) -> None:
        self.entries: deque[AuditEntry] = deque(maxlen=KEPT)

    async def record(self, entry: AuditEntry) -> None:
        self.entries.appendleft(entry)
        await super().record(entry)


_TRAILS: "WeakKeyDictionary[Forge, Trail]" = WeakKeyDictionary()


def trail(desk: Desk) -> Trail:
    """What was done through the Mission Control of this Forge."""
    found = _TRAILS.get(desk.forge)
    if found is None:
        found = _TRAILS[desk.forge] = Trail()
    return found


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
