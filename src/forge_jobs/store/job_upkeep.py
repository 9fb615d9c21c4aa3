"""What the periodic calls of the contract for jobs answer: ``reap`` and ``promote``."""

from msgspec import Struct

from forge_jobs.core.instant import Instant


class Reaped(Struct, frozen=True):
    """How many jobs ``reap`` took, by the state they went to; ``more``: its limit was reached."""

    pending: int = 0
    dead: int = 0
    cancelled: int = 0
    more: bool = False


class Promoted(Struct, frozen=True):
    """What ``promote`` did. ``next_due`` is the earliest due time or expiry of a waiting job that
    is left; ``more``: its limit was reached before everything due was promoted."""

    promoted: int = 0
    expired: int = 0
    next_due: Instant | None = None
    more: bool = False
