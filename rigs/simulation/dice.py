"""Chance for a simulated world: everything that could go two ways is asked here.

Built on the seeded entropy of ``kit``, so that a seed and a name give the same rolls on every
machine and under every hash seed.
"""

from collections.abc import Sequence
from typing import TypeVar

from forge_jobs.kit.entropy import SeededEntropy

T = TypeVar("T")


class Dice(SeededEntropy):
    """Seeded chance with the questions a simulation asks."""

    __slots__ = ()

    def chance(self, likelihood: float) -> bool:
        """True that often."""
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
        """A number in [low, high), mostly near ``low``: delays are short until they are not."""
        return low + (high - low) * self.roll() ** 4
