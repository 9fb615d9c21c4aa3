"""The heat map of run times: cells as one SVG path per shade, rendered on the server."""

from datetime import datetime
from math import log
from typing import Final

from msgspec import Struct

from forge_jobs.ops.run_times import Bucket, HeatMap

SHADES: Final = 5
ROW_HEIGHT: Final = 18


class HeatPicture(Struct, frozen=True, kw_only=True):
    """``shades`` are SVG paths in a box of one unit per column and row, the faintest first.
    ``rows`` label the box from the top, ``marks`` are the times of the first, middle and last
    column."""

    columns: int
    rows: tuple[Bucket, ...]
    height: int
    shades: tuple[str, ...]
    marks: tuple[datetime, ...]
    runs: int
    busiest: int


def heat_picture(heat: HeatMap) -> HeatPicture | None:
    """The cells of a heat map; None without a run."""
    busiest = max((runs for column in heat.columns for runs in column.runs), default=0)
    if not busiest:
        return None
    paths: list[list[str]] = [[] for _ in range(SHADES)]
    top = len(heat.rows) - 1
    for x, column in enumerate(heat.columns):
        for row, runs in enumerate(column.runs):
            if runs:
                paths[_shade(runs, busiest)].append(f"M{x} {top - row}h1v1h-1z")
    times = [column.at for column in heat.columns]
    return HeatPicture(
        columns=len(heat.columns),
        rows=tuple(reversed(heat.rows)),
        height=len(heat.rows) * ROW_HEIGHT,
        shades=tuple("".join(path) for path in paths),
        marks=(times[0], times[len(times) // 2], times[-1]),
        runs=sum(bucket.runs for bucket in heat.rows),
        busiest=busiest,
    )


def _shade(runs: int, busiest: int) -> int:
    """By the logarithm, so that few slow runs beside many fast ones are seen."""
    if busiest == 1:
        return SHADES - 1
    return min(int(log(runs) / log(busiest) * SHADES), SHADES - 1)
