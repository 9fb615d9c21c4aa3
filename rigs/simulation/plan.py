"""What jobs of a simulated world are asked to do, and how a seed makes them up.

A plan travels in the payload; ``handlers`` acts it out. Plans are mixed so that every kind of
ending meets every kind of fault.
"""

from enum import StrEnum
from typing import Any

import msgspec

from forge_jobs.core.job import NewJob, Successor, UniqueWhile
from rigs.simulation.dice import Dice

QUEUES = ("main", "slow", "limited")
LETTER_KIND = "letter"
CHILD_KIND = "child"
WORK_KIND = "work"
FRESH_KIND = "fresh"
_KEYS = 6


class Deed(StrEnum):
    """How a run behaves."""

    QUICK = "quick"
    SLOW = "slow"
    FLAKY = "flaky"
    DOOMED = "doomed"
    PERMANENT = "permanent"
    ODD = "odd"
    SNOOZE = "snooze"
    THROTTLE = "throttle"
    OVERTIME = "overtime"
    STUBBORN = "stubborn"
    PARENT = "parent"
    SPAWN = "spawn"


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job's part. ``times`` is how often it misbehaves before it succeeds."""

    number: int
    deed: Deed = Deed.QUICK
    work_s: float = 0.0
    times: int = 0
    shape: int = 0
    parent: str | None = None


_DEEDS: tuple[tuple[float, Deed], ...] = (
    (0.14, Deed.QUICK),
    (0.30, Deed.SLOW),
    (0.10, Deed.FLAKY),
    (0.05, Deed.DOOMED),
    (0.02, Deed.PERMANENT),
    (0.07, Deed.ODD),
    (0.04, Deed.SNOOZE),
    (0.04, Deed.THROTTLE),
    (0.04, Deed.OVERTIME),
    (0.05, Deed.STUBBORN),
    (0.12, Deed.PARENT),
    (0.03, Deed.SPAWN),
)


def new_job(number: int, dice: Dice) -> NewJob:
    """The request for the ``number``-th job of the world."""
    deed = _deed(dice)
    plan = Plan(
        number=number,
        deed=deed,
        work_s=round(_work_s(deed, dice), 4),
        times=1 + dice.index(3),
        shape=dice.index(1_000),
    )
    queue = "limited" if deed is Deed.THROTTLE else dice.pick(("main", "main", "slow"))
    fresh = deed is Deed.QUICK and dice.chance(0.15)
    return NewJob(
        kind=FRESH_KIND if fresh else WORK_KIND,
        queue=queue,
        payload=msgspec.json.encode(plan),
        priority=dice.index(3) - 1,
        delay_s=round(dice.between(0.1, 20), 3) if dice.chance(0.15) else 0.0,
        expires_s=round(dice.between(0.5, 40), 3) if dice.chance(0.08) else None,
        max_attempts=1 + dice.index(5),
        timeout_s=round(dice.between(0.5, 3), 3) if deed is Deed.OVERTIME else None,
        on_dead=Successor(LETTER_KIND, "main") if dice.chance(0.4) else None,
        **_dedupe(dice),
    )


def child_job(parent: str, number: int) -> NewJob:
    """The request for a job that a success carries."""
    plan = Plan(number=number, parent=parent)
    return NewJob(kind=CHILD_KIND, queue="main", payload=msgspec.json.encode(plan))


def _dedupe(dice: Dice) -> dict[str, Any]:
    if not dice.chance(0.2):
        return {}
    return {
        "dedupe_key": f"key-{dice.index(_KEYS)}",
        "dedupe_for_s": dice.between(1, 30) if dice.chance(0.3) else None,
        "unique_while": UniqueWhile.WAITING if dice.chance(0.2) else UniqueWhile.LIVE,
    }


def _deed(dice: Dice) -> Deed:
    roll = dice.roll()
    for likelihood, deed in _DEEDS:
        if roll < likelihood:
            return deed
        roll -= likelihood
    return Deed.QUICK


def _work_s(deed: Deed, dice: Dice) -> float:
    match deed:
        case Deed.SLOW:
            return dice.between(1, 30)
        case Deed.OVERTIME:
            return dice.between(2, 8)
        case Deed.STUBBORN:
            return dice.between(1, 10)
        case _:
            return dice.skewed(0, 0.5)
