"""The output of the demo: a live screen in a terminal, one line per second elsewhere."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from forge_jobs.core.status import LIVE, TERMINAL, JobStatus
from forge_jobs.ops.views import JobSummary, Overview

from . import terminal
from .queues import queue_table

_BARS = "▁▂▃▄▅▆▇█"
_HISTORY = 24
_STATES = (
    JobStatus.PENDING,
    JobStatus.RUNNING,
    JobStatus.SCHEDULED,
    JobStatus.FAILED,
    JobStatus.SUSPENDED,
    JobStatus.DONE,
    JobStatus.DEAD,
)


@dataclass(frozen=True, slots=True)
class DemoState:
    """The state of the demo at one moment."""

    elapsed_s: float
    enqueued: int
    overview: Overview
    failures: Sequence[JobSummary]

    @property
    def ended(self) -> int:
        """Jobs in a terminal state."""
        return sum(self.overview.counts[status] for status in TERMINAL)

    @property
    def live(self) -> int:
        """Jobs that wait or run."""
        return sum(self.overview.counts[status] for status in LIVE)


@dataclass(slots=True)
class Throughput:
    """Ended jobs per second, from one state to the next."""

    rates: deque[float] = field(default_factory=lambda: deque[float](maxlen=_HISTORY))
    _at_s: float = 0.0
    _ended: int = 0

    def add(self, state: DemoState) -> None:
        """Add a state. States within half a second count as one."""
        interval_s = state.elapsed_s - self._at_s
        if interval_s < 0.5:
            return
        self.rates.append(max(0, state.ended - self._ended) / interval_s)
        self._at_s, self._ended = state.elapsed_s, state.ended

    @property
    def now(self) -> float:
        """The mean of the last four rates."""
        recent = list(self.rates)[-4:]
        return sum(recent) / len(recent) if recent else 0.0

    def bars(self) -> str:
        """The history as a row of bars."""
        highest = max(self.rates, default=0.0) or 1.0
        return "".join(_BARS[round(rate / highest * (len(_BARS) - 1))] for rate in self.rates)


class LiveScreen:
    """A screen that is redrawn in place."""

    def __init__(self, screen: Console, url: str) -> None:
        self._url = url
        self._throughput = Throughput()
        self._live = Live(console=screen, auto_refresh=False, transient=False)

    def __enter__(self) -> "LiveScreen":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def draw(self, state: DemoState) -> None:
        """Draw this state."""
        self._throughput.add(state)
        self._live.update(_render(state, self._throughput, self._url), refresh=True)


class PlainLines:
    """One line per second, for logs and pipes."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._throughput = Throughput()
        self._next_s = 0.0

    def __enter__(self) -> "PlainLines":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def draw(self, state: DemoState) -> None:
        """Print this state, at most once per second."""
        self._throughput.add(state)
        if state.elapsed_s < self._next_s:
            return
        self._next_s = state.elapsed_s + 1
        counts = state.overview.counts
        waiting = state.live - counts[JobStatus.RUNNING]
        self._screen.print(
            f"{state.elapsed_s:3.0f}s  enqueued {state.enqueued}  done {counts[JobStatus.DONE]}  "
            f"dead {counts[JobStatus.DEAD]}  running {counts[JobStatus.RUNNING]}  "
            f"waiting {waiting}  {self._throughput.now:.0f}/s  "
            f"workers {len(state.overview.workers)}",
            soft_wrap=True,
        )


def _render(state: DemoState, throughput: Throughput, url: str) -> RenderableType:
    counts = state.overview.counts
    title = Text.assemble(
        ("Forge Jobs demo", "bold"),
        f"   {state.elapsed_s:.0f} s   {state.enqueued:,} enqueued   ",
        (f"{counts[JobStatus.DONE]:,} done", "green"),
        f"   {throughput.now:.0f} jobs/s ",
        (throughput.bars(), "cyan"),
    )
    title.truncate(terminal.WIDTH, overflow="crop")
    return Group(
        title,
        Text(""),
        queue_table(state.overview.queues, _STATES),
        _gates(state),
        Text(""),
        _workers(state),
        Text(""),
        _failures(state),
        Text(""),
        Text.assemble(("Mission Control, in your browser: ", "bright_black"), (url, "bold")),
        Text("Ctrl-C stops.", style="bright_black"),
    )


def _gates(state: DemoState) -> Text:
    closed = [queue.name for queue in state.overview.queues if queue.throttled_until is not None]
    return Text(f"throttled: {', '.join(closed)}" if closed else "", style="yellow")


def _workers(state: DemoState) -> RenderableType:
    rows = terminal.table("WORKER", "PID", "RUNS", "MEMORY", right=("PID", "RUNS", "MEMORY"))
    for worker in state.overview.workers:
        slots = sum(worker.slots.values())
        rows.add_row(
            worker.label,
            str(worker.pid),
            f"{worker.running}/{slots}",
            terminal.memory(worker.memory_bytes),
        )
    if not state.overview.workers:
        rows.add_row(Text("starting …", style="bright_black"), "", "", "")
    return rows


def _failures(state: DemoState) -> RenderableType:
    rows = terminal.table("RECENT FAILURES", "STATE", "TRIES", "ERROR", right=("TRIES",))
    for job in state.failures:
        tries = f"{job.attempts}/{job.max_attempts}"
        error = terminal.one_line(job.last_error or "", 44)
        rows.add_row(job.kind, terminal.status(job.status), tries, error)
    if not state.failures:
        rows.add_row(Text("none yet", style="bright_black"), "", "", "")
    return rows
