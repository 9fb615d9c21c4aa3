"""The plans of simulated jobs: what a job does, drawn from the seed.

A plan is the payload of a job; ``handlers`` executes it. Plans are mixed so that every outcome is
combined with every kind of fault.
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


class Behaviour(StrEnum):
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


class Needs(StrEnum):
    """Why an older release refuses the arguments of a job: a name it does not know, or a value of
    a type it does not take."""

    NAME = "name"
    VALUE = "value"


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """The plan of one job. ``times``: how often it fails before it succeeds. ``needs``: only a
    newer release takes its arguments."""

    number: int
    behaviour: Behaviour = Behaviour.QUICK
    work_s: float = 0.0
    times: int = 0
    shape: int = 0
    parent: str | None = None
    needs: Needs | None = None


_NEEDS = {0: Needs.NAME, 1: Needs.NAME, 2: Needs.VALUE}
# What such a job dies of is then no error of its own.
_ENDS_WELL = (Behaviour.QUICK, Behaviour.SLOW, Behaviour.PARENT)

_BEHAVIOURS: tuple[tuple[float, Behaviour], ...] = (
    (0.14, Behaviour.QUICK),
    (0.30, Behaviour.SLOW),
    (0.10, Behaviour.FLAKY),
    (0.05, Behaviour.DOOMED),
    (0.02, Behaviour.PERMANENT),
    (0.07, Behaviour.ODD),
    (0.04, Behaviour.SNOOZE),
    (0.04, Behaviour.THROTTLE),
    (0.04, Behaviour.OVERTIME),
    (0.05, Behaviour.STUBBORN),
    (0.12, Behaviour.PARENT),
    (0.03, Behaviour.SPAWN),
)


def new_job(number: int, dice: Dice) -> NewJob:
    """The request for the ``number``-th job of the simulation."""
    behaviour = _pick_behaviour(dice)
    work_s, times, shape = _work_s(behaviour, dice), 1 + dice.index(3), dice.index(1_000)
    plan = Plan(
        number=number,
        behaviour=behaviour,
        work_s=round(work_s, 4),
        times=times,
        shape=shape,
        needs=_NEEDS.get(shape % 10) if behaviour in _ENDS_WELL else None,
    )
    queue = "limited" if behaviour is Behaviour.THROTTLE else dice.pick(("main", "main", "slow"))
    fresh = behaviour is Behaviour.QUICK and dice.chance(0.15)
    return NewJob(
        kind=FRESH_KIND if fresh else WORK_KIND,
        queue=queue,
        payload=msgspec.json.encode(plan),
        priority=dice.index(3) - 1,
        delay_s=round(dice.between(0.1, 20), 3) if dice.chance(0.15) else 0.0,
        expires_s=round(dice.between(0.5, 40), 3) if dice.chance(0.08) else None,
        max_attempts=1 + dice.index(5),
        timeout_s=round(dice.between(0.5, 3), 3) if behaviour is Behaviour.OVERTIME else None,
        on_dead=Successor(LETTER_KIND, "main") if dice.chance(0.4) else None,
        **_dedupe(dice),
    )


def child_job(parent: str, number: int) -> NewJob:
    """The request for a successor."""
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


def _pick_behaviour(dice: Dice) -> Behaviour:
    roll = dice.roll()
    for likelihood, behaviour in _BEHAVIOURS:
        if roll < likelihood:
            return behaviour
        roll -= likelihood
    return Behaviour.QUICK


def _work_s(behaviour: Behaviour, dice: Dice) -> float:
    match behaviour:
        case Behaviour.SLOW:
            return dice.between(1, 30)
        case Behaviour.OVERTIME:
            return dice.between(2, 8)
        case Behaviour.STUBBORN:
            return dice.between(1, 10)
        case _:
            return dice.skewed(0, 0.5)
