"""Shortens a failed walk: leaves steps out as long as the rest still fails.

Hypothesis shrinks the drawn bytes, which takes minutes here. A step makes sense in any state, so
that leaving steps out and running the rest again takes seconds.
"""

from collections.abc import Sequence

from .operators import WholeMachine
from .requests import Step

MAX_RUNS = 300


def failure(machine: type[WholeMachine], steps: Sequence[Step]) -> Exception | None:
    """Walk these steps on a fresh store; what went wrong."""
    walk = machine()
    try:
        for step in steps:
            walk.step(step)
    except Exception as error:
        walk.teardown()
        return error
    try:
        walk.teardown()
    except Exception as error:
        return error
    return None


def shortened(
    machine: type[WholeMachine], steps: Sequence[Step]
) -> tuple[list[Step], Exception | None]:
    """A shorter walk that fails as well, and how."""
    found = failure(machine, steps)
    kept, runs, size = list(steps), 0, max(len(steps) // 2, 1)
    while found is not None and size and runs < MAX_RUNS:
        start = len(kept) - size
        while start > -size and runs < MAX_RUNS:
            rest = kept[: max(start, 0)] + kept[start + size :]
            runs += 1
            again = failure(machine, rest)
            if again is not None:
                kept, found = rest, again
            start -= size
        size //= 2
    return kept, found
