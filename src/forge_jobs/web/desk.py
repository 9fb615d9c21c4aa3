"""What a page or a route works with: the store, the person at it, and what they may do."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forge_jobs.core.errors import ForgeError
from forge_jobs.ops.act import Operator

from .access.identity import Identity, Role

if TYPE_CHECKING:
    from forge_jobs.app import Forge
    from forge_jobs.kit.clock import Clock
    from forge_jobs.ops.act import Store


class NotAllowed(ForgeError):
    """The role does not reach."""

    code = "not_allowed"


@dataclass(frozen=True, slots=True)
class Desk:
    """One person at the controls, for the length of one request."""

    forge: "Forge"
    store: "Store"
    identity: Identity
    read_only: bool = False

    @property
    def clock(self) -> "Clock":
        return self.forge.clock

    @property
    def operator(self) -> Operator:
        return Operator(self.store, actor=f"web:{self.identity.name}", clock=self.forge.clock)

    def may(self, role: Role) -> bool:
        """Whether this person may do what ``role`` may; nobody changes anything when read-only."""
        return self.identity.role >= role and (role is Role.VIEWER or not self.read_only)
