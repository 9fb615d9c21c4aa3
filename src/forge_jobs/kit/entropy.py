"""The only place that rolls dice: jitter, fresh ids, the order of equals."""

import random
from typing import Protocol

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class Entropy(Protocol):
    """Chance as the rest of the package sees it."""

    def roll(self) -> float:
        """A number in [0, 1)."""
        ...

    def bits(self, count: int) -> int:
        """That many random bits."""
        ...


class SystemEntropy:
    """Chance from the operating system's seed."""

    __slots__ = ("_random",)

    def __init__(self) -> None:
        self._random = random.Random()

    def roll(self) -> float:
        return self._random.random()

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)


class SeededEntropy(SystemEntropy):
    """Chance that repeats itself, for tests and simulations."""

    __slots__ = ()

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)


def new_ulid(now: int, entropy: Entropy) -> str:
    """A fresh ULID for an instant in microseconds; for processes, not for jobs."""
    number = now // 1000 << 80 | entropy.bits(80)
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


class SecretEntropy:
    """Chance that nobody can foretell, for tokens and salts; dearer than the rest."""

    __slots__ = ("_random",)

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def roll(self) -> float:
        return self._random.random()

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)


SYSTEM_ENTROPY: Entropy = SystemEntropy()
SECRET_ENTROPY: Entropy = SecretEntropy()
