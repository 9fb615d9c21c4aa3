"""What a page or a route works with: the store, the person at it, and what they may do."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forge_jobs.core.errors import ForgeError
from forge_jobs.ops.act import Operator
from forge_jobs.ops.bounds import BoundOperator
from forge_jobs.ops.limits import LimitOperator
from forge_jobs.ops.present import present
from forge_jobs.ops.schedules import Timetable

from .access.identity import Identity, Role

if TYPE_CHECKING:
    from forge_jobs.app import Forge
    from forge_jobs.core.instant import Instant
    from forge_jobs.kit.clock import Clock
    from forge_jobs.ops.act import Store
    from forge_jobs.ops.chronicle import Chronicle
    from forge_jobs.ops.operations import Operations


class NotAllowed(ForgeError):
    """The role does not reach."""

    code = "not_allowed"


@dataclass(frozen=True, slots=True)
class Desk:
    """One person at the controls, for the length of one request; ``root`` is where Mission Control
    is mounted."""

    forge: "Forge"
    store: "Store"
    identity: Identity
    operations: "Operations"
    chronicle: "Chronicle"
    read_only: bool = False
    root: str = ""

    @property
    def clock(self) -> "Clock":
        return self.forge.clock

    async def now(self) -> "Instant":
        """The store's time."""
        return await present(self.store, self.clock)

    @property
    def operator(self) -> Operator:
        """Jobs, queues and workers in the hands of this person."""
        return Operator(self.store, actor=self.actor, clock=self.forge.clock)

    @property
    def timetable(self) -> Timetable:
        """Schedules in the hands of this person."""
        return Timetable(self.store, actor=self.actor, clock=self.forge.clock)

    @property
    def bound_operator(self) -> BoundOperator:
        """Limits and scopes in the hands of this person."""
        return BoundOperator(self.store, actor=self.actor, clock=self.forge.clock)

    @property
    def limit_operator(self) -> LimitOperator:
        """Rate limits in the hands of this person."""
        return LimitOperator(self.store, actor=self.actor, clock=self.forge.clock)

    @property
    def actor(self) -> str:
        """Who this is, for the audit."""
        return f"web:{self.identity.name}"

    def may(self, role: Role) -> bool:
        """Whether this person may do what ``role`` may; nobody changes anything when read-only."""
        return self.identity.role >= role and (role is Role.VIEWER or not self.read_only)
