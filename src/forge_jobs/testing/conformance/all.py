"""Everything a backend's test module imports: the fixtures and every test class."""

from .fixtures import clock, second_store, store, worker
from .jobs_enqueue import TestEnqueue
from .jobs_transitions import TestTransitions

__all__ = [
    "TestEnqueue",
    "TestTransitions",
    "clock",
    "second_store",
    "store",
    "worker",
]
