"""Retry rules: whether a failed attempt is retried, and after which delay."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from .errors import BadOption
from .instant import Duration, seconds
from .steps import MAX_FAILED_RUNS

ErrorClasses: TypeAlias = type[BaseException] | Sequence[type[BaseException]]

_MAX_DOUBLINGS = 30


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off, or exact steps: the delay after the first, second, … failure.

    >>> [Backoff(base_s=15, max_s=3600).delay_s(n) for n in (1, 2, 3)]
    [15, 30, 60]
    """

    base_s: float = 15.0
    max_s: float = 3_600.0
    jitter: float = 0.1
    steps_s: tuple[float, ...] = ()

    def delay_s(self, failures: int) -> float:
        """The delay after the ``failures``-th failure, without jitter."""
        if self.steps_s:
            return self.steps_s[min(failures, len(self.steps_s)) - 1]
        return min(self.base_s * 2 ** min(max(failures - 1, 0), _MAX_DOUBLINGS), self.max_s)

    def jittered_s(self, failures: int, roll: float) -> float:
        """The delay, changed by up to ``jitter`` of it in both directions; ``roll`` is a random
        number in [0, 1)."""
        return self.delay_s(failures) * (1 + self.jitter * (2 * roll - 1))


class Retry:
    """The retry rule of a task.

    ``Retry(base="15s", max="1h", jitter=0.1)`` doubles the delay from ``base`` to ``max``.
    ``Retry(delays=["30s", "2m"])`` gives exact steps; the last one repeats, without jitter unless
    ``jitter`` is given. ``only`` retries these exception classes alone, ``never`` excludes some. A
    job whose exception is not retried is dead at once. ``total`` bounds the failed runs of a job
    with steps: one that stored a step spends no attempt.

    >>> @forge.task(max_attempts=8, retry=Retry(base="15s", max="1h", never=(ValueError,)))
    ... def charge(card: str) -> None: ...
    """

    __slots__ = ("backoff", "never", "only", "total")

    def __init__(
        self,
        *,
        base: Duration = 15.0,
        max: Duration = 3_600.0,
        jitter: float | None = None,
        delays: Sequence[Duration] = (),
        only: ErrorClasses = (),
        never: ErrorClasses = (),
        total: int = MAX_FAILED_RUNS,
    ) -> None:
        steps = tuple(seconds(step, field="delays") for step in delays)
        spread = (0.0 if steps else 0.1) if jitter is None else jitter
        if not 0 <= spread <= 1:
            raise BadOption(f"Retry(jitter={jitter!r}) must lie between 0 and 1")
        base_s, max_s = seconds(base, field="base"), seconds(max, field="max")
        if base_s > max_s:
            raise BadOption(f"Retry(base={base!r}) is longer than max={max!r}: raise max")
        self.backoff = Backoff(base_s=base_s, max_s=max_s, jitter=spread, steps_s=steps)
        if not isinstance(total, int) or total < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadOption(f"Retry(total={total!r}) must be a whole number of at least 1")
        self.only = _classes("only", only)
        self.never = _classes("never", never)
        self.total = total

    def allows(self, error: BaseException) -> bool:
        """Whether an attempt that raised this exception is retried."""
        if self.never and isinstance(error, self.never):
            return False
        return not self.only or isinstance(error, self.only)

    def __repr__(self) -> str:
        """The call that makes it, as far as it differs from ``Retry()``."""
        backoff, delays = self.backoff, [f"{step:g}s" for step in self.backoff.steps_s]
        times = {} if delays else {"base": backoff.base_s, "max": backoff.max_s}
        shown = [
            *([f"delays={delays!r}"] if delays else []),
            *(f"{name}='{value:g}s'" for name, value in times.items()),
            *([f"jitter={backoff.jitter:g}"] if backoff.jitter != (0.0 if delays else 0.1) else []),
            *(
                f"{name}=({', '.join(one.__name__ for one in classes)},)"
                for name, classes in (("only", self.only), ("never", self.never))
                if classes
            ),
            *([f"total={self.total}"] if self.total != MAX_FAILED_RUNS else []),
        ]
        return f"Retry({', '.join(shown)})"


def _classes(name: str, given: Any) -> tuple[type[BaseException], ...]:
    """Exception classes as ``isinstance`` takes them. Checked here: in a worker a wrong one would
    be an error while another error is handled."""
    listed: tuple[Any, ...] = (given,)
    if isinstance(given, tuple | list):
        listed = tuple(cast("Sequence[Any]", given))
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in listed):
        raise BadOption(
            f"Retry({name}={given!r}) must be exception classes, for example "
            f"{name}=(OSError, ValueError)"
        )
    return listed


DEFAULT_BACKOFF = Backoff()
