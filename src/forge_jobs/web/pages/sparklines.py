"""Sparklines of a queue's last minutes: bars as SVG paths, rendered on the server."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

HEIGHT: Final = 24
_STEP: Final = 4
_BAR: Final = 3
_FEWEST: Final = 4
_MOST: Final = 40


class Sparkline(Struct, frozen=True, kw_only=True):
    """``succeeded`` and ``failed`` are SVG paths; ``label`` is the text for screen readers."""

    width: int
    succeeded: str
    failed: str
    label: str


class TrendBar(NamedTuple):
    """One bar of a trend."""

    succeeded: int
    failed: int


class TrendLike(Protocol):
    """One bar."""

    @property
    def succeeded(self) -> int: ...
    @property
    def failed(self) -> int: ...


def trend(points: Sequence[TrendLike], range_name: str) -> Sparkline | None:
    """The bars of a range by its name, such as ``24h``, at most about 40 of them; None if all are
    empty, or too few to see a trend."""
    if len(points) < _FEWEST:
        return None
    size = -(-len(points) // _MOST)
    groups = [points[max(end - size, 0) : end] for end in range(len(points), 0, -size)]
    bars = [
        TrendBar(sum(one.succeeded for one in group), sum(one.failed for one in group))
        for group in reversed(groups)
    ]
    return sparkline(bars, span=range_name, each="in one bar")


def sparkline(
    minutes: Sequence[TrendLike], *, span: str = "", each: str = "a minute"
) -> Sparkline | None:
    """The bars of these minutes, or of a ``span`` in other steps; None if all are empty."""
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
    counts = f"{done_count:,} done, {failed_count:,} failed, at most {busiest:,} {each}"
    return Sparkline(
        width=len(minutes) * _STEP,
        succeeded="".join(succeeded),
        failed="".join(failed),
        label=f"last {span or f'{len(minutes)} min'}: {counts}",
    )


def _height(count: int, busiest: int) -> int:
    """At least one pixel for a count above zero."""
    return max(1, round(count / busiest * (HEIGHT - 1))) if count else 0


def _bar(index: int, baseline: int, height: int) -> str:
    return f"M{index * _STEP} {baseline}v-{height}h{_BAR}v{height}z"
