"""The arithmetic of the benchmark: medians, percentiles, intervals and verdicts.

Pure functions and records only: no process, no file and no clock is touched here.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

RESAMPLES = 2_000
BOOTSTRAP_SEED = 20_240


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one system from one round."""

    system: str
    name: str
    value: float
    unit: str


@dataclass(slots=True)
class Series:
    """Everything measured so far, by (system, name), in the order of the rounds."""

    values: dict[tuple[str, str], list[float]] = field(
        default_factory=dict[tuple[str, str], list[float]]
    )
    units: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def add(self, figures: Iterable[Figure]) -> None:
        for figure in figures:
            key = (figure.system, figure.name)
            self.values.setdefault(key, []).append(figure.value)
            self.units[key] = figure.unit

    def of(self, system: str, name: str) -> list[float]:
        return self.values.get((system, name), [])

    def median(self, system: str, name: str) -> float | None:
        values = self.of(system, name)
        return statistics.median(values) if values else None

    def best(self, systems: Sequence[str], name: str) -> tuple[str, float] | None:
        """The system with the highest median of `name`: a peer is judged by its best setting."""
        found = [
            (system, median)
            for system in systems
            if (median := self.median(system, name)) is not None
        ]
        return max(found, key=lambda pair: pair[1]) if found else None


class Sense(Enum):
    MIN_AT = "≥"
    MAX_AT = "≤"
    BELOW = "<"


class Verdict(Enum):
    AIM = "aim reached"
    MUST = "must reached"
    MISSED = "MISSED"
    OPEN = "not measured"
    BESIDE = "no target"
    UNEQUAL = "UNEQUAL"


@dataclass(frozen=True, slots=True)
class Target:
    """One row of the project's performance targets; without a bar it is only shown."""

    key: str
    text: str
    must: float | None
    aim: float | None
    unit: str
    sense: Sense = Sense.MIN_AT
    level: str | None = None
    """The level our side must have written at for the comparison to be fair, if it matters."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A target beside what was measured; `low` and `high` bound a 90 % interval, if any.

    `unequal`: the audit found that our side did not write at the level the target asks for.
    """

    target: Target
    measured: float | None
    note: str = ""
    low: float | None = None
    high: float | None = None
    unequal: bool = False

    @property
    def verdict(self) -> Verdict:
        target = self.target
        if self.measured is None:
            return Verdict.OPEN
        if target.must is None or target.aim is None:
            return Verdict.BESIDE
        if self.unequal:
            return Verdict.UNEQUAL
        if self._reaches(target.aim):
            return Verdict.AIM
        return Verdict.MUST if self._reaches(target.must) else Verdict.MISSED

    def _reaches(self, bound: float) -> bool:
        """An interval passes when its better end reaches the bound."""
        assert self.measured is not None
        match self.target.sense:
            case Sense.MIN_AT:
                return (self.measured if self.high is None else self.high) >= bound
            case Sense.MAX_AT:
                return (self.measured if self.low is None else self.low) <= bound
            case Sense.BELOW:
                return (self.measured if self.low is None else self.low) < bound


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of `values` lie, by linear interpolation."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def interval_90(values: Sequence[float]) -> tuple[float, float]:
    """A 90 % interval of the median by resampling, with a fixed seed so that a report repeats."""
    dice = random.Random(BOOTSTRAP_SEED)
    medians = [statistics.median(dice.choices(values, k=len(values))) for _ in range(RESAMPLES)]
    return percentile(medians, 0.05), percentile(medians, 0.95)


def paired(target: Target, ratios: Sequence[float], note: str = "") -> Outcome:
    """Judge ratios of alternating windows: the median, with its 90 % interval."""
    if not ratios:
        return Outcome(target, None, note)
    if len(ratios) == 1:
        return Outcome(target, ratios[0], note)
    low, high = interval_90(ratios)
    return Outcome(target, statistics.median(ratios), note, low, high)


def ratio(target: Target, ours: float | None, peer: tuple[str, float] | None) -> Outcome:
    """Judge a ratio of two medians, naming the peer that was the best."""
    if ours is None or peer is None:
        return Outcome(target, None, "" if peer is None else f"{peer[0]} {peer[1]:,.0f}/s")
    return Outcome(target, ours / peer[1], f"{ours:,.0f}/s to {peer[1]:,.0f}/s of {peer[0]}")
