"""The throttle gate of a queue or scope: how long it closes, and when its count is reset.

The gate counts *events* of the external limiter, not workers: a throttle that arrives while it is
closed changes nothing, so ten handlers that hit one limit close it once.
"""

from dataclasses import dataclass

from .instant import SECOND, Instant, after
from .retry import Backoff

FLAT_THROTTLE_S = 60.0
DECAY_GRACE_S = 120.0
MAX_COUNT = 30


@dataclass(frozen=True, slots=True)
class Gate:
    """The throttle state of a queue or scope: closed before ``until``. ``count``: throttles since
    the last reset, for the back-off."""

    until: Instant | None = None
    count: int = 0

    def closed(self, now: Instant) -> bool:
        """Whether nothing may be claimed now."""
        return self.until is not None and self.until > now


OPEN = Gate()
# The back-off of a scope whose limiter gave no delay, unless its queue has a back-off. A queue
# without a back-off waits a flat minute.
SCOPE_CURVE = Backoff(base_s=15.0, max_s=3_600.0)


def throttle_delay_s(gate: Gate, given_s: float | None, curve: Backoff | None) -> float:
    """How long the gate closes: the delay of the limiter, else the back-off, else a minute."""
    if given_s is not None:
        return given_s
    return FLAT_THROTTLE_S if curve is None else curve.delay_s(gate.count + 1)


def throttled(gate: Gate, now: Instant, delay_s: float) -> Gate:
    """The gate after one throttle; a closed gate stays as it is."""
    if gate.closed(now):
        return gate
    return Gate(until=after(now, delay_s), count=min(gate.count + 1, MAX_COUNT))


def succeeded(gate: Gate, now: Instant) -> Gate:
    """The gate after a success: reset only when it has been open for two minutes."""
    if gate.count == 0 or gate.until is None:
        return OPEN if gate.count == 0 and not gate.closed(now) else gate
    return OPEN if gate.until <= now - int(DECAY_GRACE_S * SECOND) else gate
