"""Chooses which process claims a single new job first; the others wait a little.

If all processes claimed at once, one would get the job and the others would only load the server:
with two workers on two cores that delays the job's start, with fifty workers it is fifty calls. So
the notification of a single job carries a random number from the sender, by which all processes
choose the same one. The others claim too, ``DELAY_S`` later, in case the chosen one has no free
slot or is gone.
"""

from collections.abc import Iterable
from typing import Final

from forge_jobs.store.processes import ProcessRecord

DELAY_S: Final = 0.005
_NUMBERS: Final = 1_000_000
_SEPARATOR: Final = "?"


def encode(queue: str, roll: float) -> str:
    """The notification of one job in this queue; ``roll`` is a random number in [0, 1)."""
    return f"{queue}{_SEPARATOR}{int(roll * _NUMBERS)}"


def decode(text: str) -> tuple[str, int] | None:
    """The queue and the number in the notification of one job; None for any other text."""
    queue, separator, number = text.partition(_SEPARATOR)
    return (queue, int(number)) if separator and number.isdecimal() else None


class ClaimTurns:
    """The processes that serve each queue, as this process last read them."""

    def __init__(self) -> None:
        self._own: set[int] = set()
        self._serving: dict[str, list[int]] = {}

    def add_process(self, key: int) -> None:
        """A worker process was registered through this store."""
        self._own.add(key)

    def remove_process(self, key: int) -> None:
        """A worker process of this store was deregistered."""
        self._own.discard(key)

    def update(self, processes: Iterable[ProcessRecord]) -> None:
        """Replace what is known by a reading of all live processes, made for any purpose."""
        serving: dict[str, list[int]] = {}
        for process in processes:
            for queue, share in process.shares.items():
                if share.slots > 0 and not process.quiet:
                    serving.setdefault(queue, []).append(process.key)
        self._serving = {queue: sorted(keys) for queue, keys in serving.items()}

    def wait_s(self, queue: str, number: int) -> float:
        """How long to wait before claiming. A process that is not known yet does not wait."""
        serving = self._serving.get(queue, ())
        if self._own.isdisjoint(serving) or serving[number % len(serving)] in self._own:
            return 0.0
        return DELAY_S
