"""The small picture of a queue's last minutes: bars as one SVG path, drawn on the server."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from forge_jobs.ops.queue_activity import Flow

HEIGHT: Final = 24
_STEP: Final = 4
_BAR: Final = 3


class Sparkline(Struct, frozen=True, kw_only=True):
    """``good`` and ``bad`` are paths; ``told`` says the same in words."""

    width: int
    good: str
    bad: str
    told: str


def sparkline(flow: Sequence[Flow]) -> Sparkline | None:
    """None where there is nothing to draw."""
    most = max((minute.good + minute.bad for minute in flow), default=0)
    if not most:
        return None
    good: list[str] = []
    bad: list[str] = []
    for place, minute in enumerate(flow):
        top = _height(minute.bad, most)
        below = _height(minute.good, most)
        if below:
            good.append(_bar(place, HEIGHT, below))
        if top:
            bad.append(_bar(place, HEIGHT - below, top))
    ended, failed = sum(m.good for m in flow), sum(m.bad for m in flow)
    told = f"last {len(flow)} min: {ended:,} done, {failed:,} failed, at most {most:,} a minute"
    return Sparkline(width=len(flow) * _STEP, good="".join(good), bad="".join(bad), told=told)


def _height(count: int, most: int) -> int:
    """At least a pixel for anything that happened."""
    return max(1, round(count / most * (HEIGHT - 1))) if count else 0


def _bar(place: int, foot: int, height: int) -> str:
    return f"M{place * _STEP} {foot}v-{height}h{_BAR}v{height}z"
