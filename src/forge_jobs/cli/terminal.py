"""Terminal output: tables within 80 columns, durations, ages, colours of states, JSON."""

import sys
from collections.abc import Iterable
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from forge_jobs.core.status import JobStatus

_STYLE = {
    JobStatus.SCHEDULED: "blue",
    JobStatus.PENDING: "cyan",
    JobStatus.HELD: "magenta",
    JobStatus.RUNNING: "yellow",
    JobStatus.FAILED: "dark_orange",
    JobStatus.SUSPENDED: "bright_blue",
    JobStatus.DONE: "green",
    JobStatus.DEAD: "bold red",
    JobStatus.CANCELLED: "bright_black",
}
WIDTH = 80
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60))


def console() -> Console:
    """The console of results: stdout."""
    return Console(highlight=False, emoji=False, markup=False)


def messages() -> Console:
    """The console of progress and questions: stderr, so that stdout holds only results."""
    return Console(stderr=True, highlight=False, emoji=False, markup=False)


def write_json(data: bytes) -> None:
    """Write one JSON document to stdout, without wrapping."""
    sys.stdout.write(data.decode() + "\n")


def table(
    *columns: str,
    right: Iterable[str] = (),
    fold: Iterable[str] = (),
    shrink: Iterable[str] = (),
) -> Table:
    """A table without borders. ``right`` columns are right-aligned, ``fold`` columns may take
    several lines, ``shrink`` columns are cut with an ellipsis if the terminal is too narrow."""
    rows = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    numbers, folding, shrinking = set(right), set(fold), set(shrink)
    for name in columns:
        rows.add_column(
            name,
            justify="right" if name in numbers else "left",
            no_wrap=name not in folding | shrinking,
            overflow="fold" if name in folding else "ellipsis",
        )
    return rows


def cut(text: str) -> Text:
    """A cell of a ``shrink`` column that stays on one line, although it has spaces."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def facts(pairs: Iterable[tuple[str, str | Text | None]]) -> Table:
    """A list of names and values, one per line; skips None."""
    rows = Table.grid(padding=(0, 2, 0, 0))
    rows.add_column(style="bright_black", no_wrap=True)
    rows.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            rows.add_row(name, value)
    return rows


def status(value: JobStatus) -> Text:
    """A state in its colour."""
    return Text(value, style=_STYLE[value])


def number(value: int) -> Text:
    """A count; grey if it is zero."""
    return Text(f"{value:,}", style="bright_black" if value == 0 else "")


def alarm(value: int, style: str = "red") -> Text:
    """A count that should be zero; coloured if it is not."""
    return Text(f"{value:,}", style=style if value else "bright_black")


def span(seconds: float | None) -> str:
    """A duration in at most two units.

    >>> span(3_725), span(0.25), span(12.34)
    ('1h 2m', '250ms', '12.3s')
    """
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds >= 0.001 else "<1ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    parts: list[str] = []
    left = round(seconds)
    for unit, size in _UNITS:
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    if left:
        parts.append(f"{left}s")
    return " ".join(parts[:2])


def short(seconds: float) -> str:
    """A duration in one unit: ``<1s``, ``4s``, ``12m``, ``3h``, ``9d``."""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s" if seconds >= 1 else "<1s"


def ago(time: datetime, now: datetime) -> str:
    """A time relative to ``now``, in one unit: ``4s ago``, ``in 3h``."""
    age_s = (now - time).total_seconds()
    if -1 < age_s < 1:
        return "now"
    return f"{short(age_s)} ago" if age_s >= 0 else f"in {short(-age_s)}"


def clock_time(time: datetime, now: datetime) -> str:
    """A time, absolute and relative to ``now``."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC ({ago(time, now)})"


def retention(seconds: float | None) -> str:
    """A retention; None is for ever."""
    return "for ever" if seconds is None else span(seconds)


def one_line(text: str, max_length: int) -> str:
    """The first line of a text, cut to ``max_length``."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def memory(size: int) -> str:
    """Bytes as megabytes."""
    return f"{size / 1_048_576:.0f} MB" if size else "-"


def plural(count: int, noun: str) -> str:
    """``1 worker``, ``2,000 workers``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
