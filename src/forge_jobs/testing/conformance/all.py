"""Everything a backend's test module imports: the fixtures and every test class."""

from .fixtures import clock, second_store, store, worker
from .jobs_cancel import TestCancel
from .jobs_carried import TestCarriedJobs
from .jobs_dedupe import TestDedupe, TestKeyLife, TestRetryAndKeys
from .jobs_due import TestExpiry, TestPromote
from .jobs_enqueue import TestEnqueue
from .jobs_exchange import TestAnswers, TestClaims
from .jobs_fence import TestFence, TestLostReplies
from .jobs_liveness import TestLeaving, TestReap
from .jobs_running import TestHandBack, TestNotes
from .jobs_throttle import TestBudgets, TestThrottle
from .jobs_transitions import TestTransitions

__all__ = [
    "TestAnswers",
    "TestBudgets",
    "TestCancel",
    "TestCarriedJobs",
    "TestClaims",
    "TestDedupe",
    "TestEnqueue",
    "TestExpiry",
    "TestFence",
    "TestHandBack",
    "TestKeyLife",
    "TestLeaving",
    "TestLostReplies",
    "TestNotes",
    "TestPromote",
    "TestReap",
    "TestRetryAndKeys",
    "TestThrottle",
    "TestTransitions",
    "clock",
    "second_store",
    "store",
    "worker",
]
