"""The random numbers of the simulation: every random decision is drawn here.

Built on the seeded entropy of ``kit``, so that a seed and a name give the same numbers on every
machine and under every hash seed.
"""

from collections.abc import Sequence
from typing import TypeVar

from forge_jobs.kit.entropy import SeededEntropy

T = TypeVar("T")


class Dice(SeededEntropy):
    """A seeded generator with the distributions that the simulation needs."""

    __slots__ = ()

    def chance(self, likelihood: float) -> bool:
        """True with this probability."""
        return self.roll() < likelihood

    def between(self, low: float, high: float) -> float:
        """A number in [low, high)."""
        return low + (high - low) * self.roll()

    def index(self, count: int) -> int:
        """A whole number in [0, count)."""
        return int(self.roll() * count)

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.index(len(items))]

    def skewed(self, low: float, high: float) -> float:
        """A number in [low, high), mostly near ``low``, like network delays."""
        return low + (high - low) * self.roll() ** 4
