"""Sparklines of a queue's last minutes: bars as SVG paths, rendered on the server."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from forge_jobs.ops.queue_activity import QueueMinute

HEIGHT: Final = 24
_STEP: Final = 4
_BAR: Final = 3


class Sparkline(Struct, frozen=True, kw_only=True):
    """``succeeded`` and ``failed`` are SVG paths; ``label`` is the text for screen readers."""

    width: int
    succeeded: str
    failed: str
    label: str


def sparkline(minutes: Sequence[QueueMinute]) -> Sparkline | None:
    """The bars of these minutes; None if all are empty."""
    busiest = max((minute.succeeded + minute.failed for minute in minutes), default=0)
    if not busiest:
        return None
    succeeded: list[str] = []
    failed: list[str] = []
    for index, minute in enumerate(minutes):
        failed_height = _height(minute.failed, busiest)
        succeeded_height = _height(minute.succeeded, busiest)
        if succeeded_height:
            succeeded.append(_bar(index, HEIGHT, succeeded_height))
        if failed_height:
            failed.append(_bar(index, HEIGHT - succeeded_height, failed_height))
    done_count = sum(minute.succeeded for minute in minutes)
    failed_count = sum(minute.failed for minute in minutes)
    counts = f"{done_count:,} done, {failed_count:,} failed, at most {busiest:,} a minute"
    return Sparkline(
        width=len(minutes) * _STEP,
        succeeded="".join(succeeded),
        failed="".join(failed),
        label=f"last {len(minutes)} min: {counts}",
    )


def _height(count: int, busiest: int) -> int:
    """At least one pixel for a count above zero."""
    return max(1, round(count / busiest * (HEIGHT - 1))) if count else 0


def _bar(index: int, baseline: int, height: int) -> str:
    return f"M{index * _STEP} {baseline}v-{height}h{_BAR}v{height}z"
