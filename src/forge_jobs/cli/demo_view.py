"""How the demo looks: a live picture in a terminal, one line a second elsewhere."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from forge_jobs.core.status import LIVE, TERMINAL, JobStatus
from forge_jobs.ops.views import JobSummary, Overview

from . import show
from .queues import queue_table

_BARS = "▁▂▃▄▅▆▇█"
_HISTORY = 24
_STATES = (
    JobStatus.PENDING,
    JobStatus.RUNNING,
    JobStatus.SCHEDULED,
    JobStatus.FAILED,
    JobStatus.DONE,
    JobStatus.DEAD,
)


@dataclass(frozen=True, slots=True)
class Picture:
    """What there is to see at one moment."""

    elapsed_s: float
    fed: int
    seen: Overview
    failures: Sequence[JobSummary]

    @property
    def ended(self) -> int:
        """Jobs that came to an end."""
        return sum(self.seen.counts[status] for status in TERMINAL)

    @property
    def live(self) -> int:
        """Jobs that still wait or run."""
        return sum(self.seen.counts[status] for status in LIVE)


@dataclass(slots=True)
class Throughput:
    """Ended jobs per second, from one look to the next."""

    rates: deque[float] = field(default_factory=lambda: deque[float](maxlen=_HISTORY))
    _at_s: float = 0.0
    _ended: int = 0

    def note(self, picture: Picture) -> None:
        """Take in one look; looks closer than half a second are taken together."""
        passed = picture.elapsed_s - self._at_s
        if passed < 0.5:
            return
        self.rates.append(max(0, picture.ended - self._ended) / passed)
        self._at_s, self._ended = picture.elapsed_s, picture.ended

    @property
    def now(self) -> float:
        """The mean of the last looks."""
        recent = list(self.rates)[-4:]
        return sum(recent) / len(recent) if recent else 0.0

    def bars(self) -> str:
        """The history as a row of bars."""
        most = max(self.rates, default=0.0) or 1.0
        return "".join(_BARS[round(rate / most * (len(_BARS) - 1))] for rate in self.rates)


class LiveScreen:
    """The picture, drawn over itself."""

    def __init__(self, screen: Console, url: str) -> None:
        self._url = url
        self._pace = Throughput()
        self._live = Live(console=screen, auto_refresh=False, transient=False)

    def __enter__(self) -> "LiveScreen":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def draw(self, picture: Picture) -> None:
        """Show this moment."""
        self._pace.note(picture)
        self._live.update(_drawn(picture, self._pace, self._url), refresh=True)


class PlainLines:
    """One line a second, for logs and pipes."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._pace = Throughput()
        self._next_s = 0.0

    def __enter__(self) -> "PlainLines":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def draw(self, picture: Picture) -> None:
        """Say this moment, if the last one was said a second ago."""
        self._pace.note(picture)
        if picture.elapsed_s < self._next_s:
            return
        self._next_s = picture.elapsed_s + 1
        counts = picture.seen.counts
        waiting = picture.live - counts[JobStatus.RUNNING]
        self._screen.print(
            f"{picture.elapsed_s:3.0f}s  enqueued {picture.fed}  done {counts[JobStatus.DONE]}  "
            f"dead {counts[JobStatus.DEAD]}  running {counts[JobStatus.RUNNING]}  "
            f"waiting {waiting}  {self._pace.now:.0f}/s  workers {len(picture.seen.workers)}",
            soft_wrap=True,
        )


def _drawn(picture: Picture, pace: Throughput, url: str) -> RenderableType:
    counts = picture.seen.counts
    title = Text.assemble(
        ("Forge Jobs demo", "bold"),
        f"   {picture.elapsed_s:.0f} s   {picture.fed:,} enqueued   ",
        (f"{counts[JobStatus.DONE]:,} done", "green"),
        f"   {pace.now:.0f} jobs/s ",
        (pace.bars(), "cyan"),
    )
    title.truncate(show.WIDTH, overflow="crop")
    return Group(
        title,
        Text(""),
        queue_table(picture.seen.queues, _STATES),
        _gates(picture),
        Text(""),
        _workers(picture),
        Text(""),
        _failures(picture),
        Text(""),
        Text.assemble(("Mission Control, in your browser: ", "bright_black"), (url, "bold")),
        Text("Ctrl-C stops.", style="bright_black"),
    )


def _gates(picture: Picture) -> Text:
    closed = [queue.name for queue in picture.seen.queues if queue.throttled_until is not None]
    return Text(f"throttled: {', '.join(closed)}" if closed else "", style="yellow")


def _workers(picture: Picture) -> RenderableType:
    rows = show.table("WORKER", "PID", "RUNS", "MEMORY", right=("PID", "RUNS", "MEMORY"))
    for worker in picture.seen.workers:
        slots = sum(worker.slots.values())
        rows.add_row(
            worker.label,
            str(worker.pid),
            f"{worker.running}/{slots}",
            show.memory(worker.memory_bytes),
        )
    if not picture.seen.workers:
        rows.add_row(Text("starting …", style="bright_black"), "", "", "")
    return rows


def _failures(picture: Picture) -> RenderableType:
    rows = show.table("RECENT FAILURES", "STATE", "TRIES", "ERROR", right=("TRIES",))
    for job in picture.failures:
        tries = f"{job.attempts}/{job.max_attempts}"
        error = show.one_line(job.last_error or "", 44)
        rows.add_row(job.kind, show.status(job.status), tries, error)
    if not picture.failures:
        rows.add_row(Text("none yet", style="bright_black"), "", "", "")
    return rows
