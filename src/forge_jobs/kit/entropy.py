"""The randomness port: the only module that draws random numbers (jitter, ids, tie-breaking)."""

import random
from typing import Protocol

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class Entropy(Protocol):
    """The source of random numbers of the package.

    >>> 0 <= SYSTEM_ENTROPY.roll() < 1
    True
    """

    def roll(self) -> float:
        """A random number in [0, 1)."""
        ...

    def bits(self, count: int) -> int:
        """An integer of ``count`` random bits."""
        ...


class SystemEntropy:
    """A pseudo-random generator that the operating system seeds."""

    __slots__ = ("_random",)

    def __init__(self) -> None:
        self._random = random.Random()

    def roll(self) -> float:
        return self._random.random()

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)


class SeededEntropy(SystemEntropy):
    """A pseudo-random generator with a fixed seed, for tests and simulations."""

    __slots__ = ()

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)


def new_ulid(now: int, entropy: Entropy) -> str:
    """A new ULID for an instant in microseconds. For ids of processes, not of jobs."""
    number = now // 1000 << 80 | entropy.bits(80)
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


class SecretEntropy:
    """Cryptographically secure random numbers, for tokens and salts. Slower than the others."""

    __slots__ = ("_random",)

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def roll(self) -> float:
        return self._random.random()

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)


SYSTEM_ENTROPY: Entropy = SystemEntropy()
SECRET_ENTROPY: Entropy = SecretEntropy()
