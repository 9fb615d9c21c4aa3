"""The last runs of a schedule as ticks: bars as high as the run was long, gaps for missed ticks."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from forge_jobs.ops.schedule_runs import RunView, TickResult
from forge_jobs.web.rendering import duration

HEIGHT: Final = 24
_STEP: Final = 7
_WIDTH: Final = 5
_MIN_HEIGHT: Final = 6
# So many missed ticks in a row are drawn one by one.
_MAX_GAPS: Final = 3
_LOOKS: Final = {
    TickResult.DONE: "good",
    TickResult.DEAD: "bad",
    TickResult.CANCELLED: "soft",
    TickResult.RUNNING: "info",
    TickResult.WAITING: "wait",
    TickResult.SKIPPED: "warn",
    TickResult.MISSED: "gap",
    TickResult.GONE: "soft",
}


class RunTick(Struct, frozen=True, kw_only=True):
    """One bar, from the top at ``y``. ``looks`` is its CSS class."""

    x: int
    y: int
    height: int
    looks: str
    title: str


class RunTicks(Struct, frozen=True, kw_only=True):
    """All bars, and the text for screen readers."""

    ticks: tuple[RunTick, ...]
    width: int
    label: str


def run_ticks(runs: Sequence[RunView]) -> RunTicks | None:
    """The ticks of these runs, the oldest first; None without runs."""
    if not runs:
        return None
    longest = max((run.ran_s or 0.0 for run in runs), default=0.0)
    ticks: list[RunTick] = []
    for run in runs:
        before = f"missed before {run.tick:%d %b %H:%M:%S} UTC"
        for _ in range(min(run.missed, _MAX_GAPS)):
            ticks.append(_tick(len(ticks), _MIN_HEIGHT, "gap", f"{run.missed} {before}"))
        height = _MIN_HEIGHT
        if longest and run.ran_s is not None:
            height += round((HEIGHT - _MIN_HEIGHT) * run.ran_s / longest)
        ticks.append(_tick(len(ticks), height, _LOOKS[run.state], _title(run)))
    counts = Counter(run.state for run in runs)
    missed = counts.pop(TickResult.MISSED, 0) + sum(run.missed for run in runs)
    parts = [f"{count} {state}" for state, count in counts.items()]
    if missed:
        parts.append(f"{missed} missed")
    return RunTicks(
        ticks=tuple(ticks),
        width=len(ticks) * _STEP,
        label=f"last {len(runs)} run{'' if len(runs) == 1 else 's'}: {', '.join(parts)}",
    )


def _tick(index: int, height: int, looks: str, title: str) -> RunTick:
    return RunTick(x=index * _STEP, y=HEIGHT - height, height=height, looks=looks, title=title)


def _title(run: RunView) -> str:
    ran = "" if run.ran_s is None else f" in {duration(run.ran_s)}"
    return f"{run.tick:%d %b %H:%M:%S} UTC: {run.state}{ran}"
