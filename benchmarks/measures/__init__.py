"""The measures, in the order they run. Each is one module with one class and one docstring."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.bench import Measure
from benchmarks.measures.depth import Depth
from benchmarks.measures.drain import Drain
from benchmarks.measures.enqueue import Enqueue
from benchmarks.measures.idle import Idle
from benchmarks.measures.sync import Sync
from benchmarks.measures.waiting import Waiting

MEASURES: dict[str, Callable[[], Measure]] = {
    "drain": Drain,
    "enqueue": Enqueue,
    "idle": Idle,
    "await": Waiting,
    "def": Sync,
    "depth": Depth,
}
