"""Whether workers keep up: how a backlog changed, and when it will be empty."""

from collections.abc import Sequence
from enum import StrEnum

# A backlog that changes by less than this share of what comes in is steady.
_STEADY_SHARE = 0.05


class Trend(StrEnum):
    """How a backlog changes. ``stopped``: jobs wait, none runs and none ends."""

    IDLE = "idle"
    KEEPING_UP = "keeping up"
    CATCHING_UP = "catching up"
    FALLING_BEHIND = "falling behind"
    STOPPED = "stopped"


def trend(backlog: int, enqueued: int, ended: int, *, running: int) -> Trend:
    """How a backlog changes, from what came in and what ended within one span."""
    if not backlog:
        return Trend.KEEPING_UP if enqueued or ended else Trend.IDLE
    if not ended and not running:
        return Trend.STOPPED
    if abs(enqueued - ended) <= _STEADY_SHARE * max(enqueued, ended):
        return Trend.KEEPING_UP
    return Trend.FALLING_BEHIND if enqueued > ended else Trend.CATCHING_UP


def empty_in_s(backlog: int, enqueued: int, ended: int, span_s: float) -> float | None:
    """After how many seconds the backlog is empty if everything goes on as within the span; None
    if it does not shrink."""
    if not backlog:
        return 0.0
    shrinks_by = ended - enqueued
    return backlog * span_s / shrinks_by if shrinks_by > 0 and span_s > 0 else None


def earlier_backlogs(now: int, changes: Sequence[int]) -> list[int]:
    """The number of jobs at the end of each step, from the number now and by how much each step
    changed it, oldest first. Never below zero: jobs that were brought back count from the start."""
    found: list[int] = []
    for change in reversed(changes):
        found.append(max(now, 0))
        now -= change
    return found[::-1]


def utilisation(ran_s: float, slots: int, span_s: float) -> float | None:
    """The share of the time of all slots in which handlers ran; None without slots. The time of a
    run counts when it ends, so that a long one may exceed its span: at most 1."""
    return min(1.0, ran_s / (slots * span_s)) if slots > 0 and span_s > 0 else None
