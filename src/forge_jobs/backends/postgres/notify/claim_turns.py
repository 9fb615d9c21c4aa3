"""Whose turn it is when a single job came: one process asks at once, the others a little later.

If all asked at once, one would get the job and the others would only be in its way: with two
workers on two cores they are a part of the time to its start, with fifty workers they are fifty
calls. The notification of a single job carries a lot, drawn by the sender, by which all who hear it
find the same process. The others ask all the same, in case that one has no room or is gone.
"""

from collections.abc import Iterable
from typing import Final

from forge_jobs.store.processes import ProcessRecord

LATER_S: Final = 0.005
_LOTS: Final = 1_000_000
_MARK: Final = "?"


def say(queue: str, roll: float) -> str:
    """What to tell of one job in this queue; ``roll`` is any number in [0, 1)."""
    return f"{queue}{_MARK}{int(roll * _LOTS)}"


def read(text: str) -> tuple[str, int] | None:
    """The queue and the lot, if this was told of one job."""
    queue, mark, lot = text.partition(_MARK)
    return (queue, int(lot)) if mark and lot.isdecimal() else None


class ClaimTurns:
    """Who serves which queue, as of this process's last look at all of them."""

    def __init__(self) -> None:
        self._own: set[int] = set()
        self._serving: dict[str, list[int]] = {}

    def joined(self, key: int) -> None:
        """A worker of this store was registered."""
        self._own.add(key)

    def left(self, key: int) -> None:
        """It is gone."""
        self._own.discard(key)

    def learn(self, processes: Iterable[ProcessRecord]) -> None:
        """Take in a look at who is alive, whatever it was taken for."""
        serving: dict[str, list[int]] = {}
        for process in processes:
            for queue, share in process.shares.items():
                if share.slots > 0 and not process.quiet:
                    serving.setdefault(queue, []).append(process.key)
        self._serving = {queue: sorted(keys) for queue, keys in serving.items()}

    def wait_s(self, queue: str, lot: int) -> float:
        """How long to wait before asking; whoever is not in the list yet does not wait."""
        serving = self._serving.get(queue, ())
        if self._own.isdisjoint(serving) or serving[lot % len(serving)] in self._own:
            return 0.0
        return LATER_S
