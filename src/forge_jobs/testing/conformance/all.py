"""Everything a backend's test module imports: the fixtures and every test class."""

from .fixtures import clock, second_store, store, worker
from .jobs_due import TestExpiry, TestPromote
from .jobs_enqueue import TestEnqueue
from .jobs_exchange import TestAnswers, TestClaims
from .jobs_fence import TestFence, TestLostReplies
from .jobs_running import TestHandBack, TestNotes
from .jobs_transitions import TestTransitions

__all__ = [
    "TestAnswers",
    "TestClaims",
    "TestEnqueue",
    "TestExpiry",
    "TestFence",
    "TestHandBack",
    "TestLostReplies",
    "TestNotes",
    "TestPromote",
    "TestTransitions",
    "clock",
    "second_store",
    "store",
    "worker",
]
