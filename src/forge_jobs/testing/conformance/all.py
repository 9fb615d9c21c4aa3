"""Everything a backend's test module imports: the fixtures and every test class."""

from .cron_schedules import TestTicks, TestTimetable
from .fixtures import clock, second_store, store, worker
from .jobs_bulk import TestBulk, TestDelete, TestRetry
from .jobs_cancel import TestCancel
from .jobs_carried import TestCarriedJobs
from .jobs_dedupe import TestDedupe, TestKeyLife, TestRetryAndKeys
from .jobs_due import TestExpiry, TestPromote
from .jobs_enqueue import TestEnqueue
from .jobs_exchange import TestAnswers, TestClaims
from .jobs_fence import TestFence, TestLostReplies
from .jobs_lanes import TestLanes
from .jobs_liveness import TestLeaving, TestReap
from .jobs_pages import TestGet, TestPages
from .jobs_retention import TestRetention
from .jobs_running import TestHandBack, TestNotes
from .jobs_scopes import TestScopes
from .jobs_throttle import TestBudgets, TestThrottle
from .jobs_transitions import TestTransitions
from .jobs_walk import TestWalk
from .limits import TestCaps, TestKeys, TestLimitNumbers, TestRates
from .metrics import TestLedger, TestMinutes
from .metrics_audit import TestAudit
from .metrics_times import TestFlow, TestTimes, TestTotals, TestVitals
from .processes import TestLeadership, TestProcesses
from .queues import TestKinds, TestQueues
from .schedules import TestBuckets
from .settings import TestSettings
from .shares import TestShares
from .store import TestStore, TestSyncEnqueue, TestTwoStores, TestWaking

__all__ = [
    "TestAnswers",
    "TestAudit",
    "TestBuckets",
    "TestBudgets",
    "TestBulk",
    "TestCancel",
    "TestCaps",
    "TestCarriedJobs",
    "TestClaims",
    "TestDedupe",
    "TestDelete",
    "TestEnqueue",
    "TestExpiry",
    "TestFence",
    "TestFlow",
    "TestGet",
    "TestHandBack",
    "TestKeyLife",
    "TestKeys",
    "TestKinds",
    "TestLanes",
    "TestLeadership",
    "TestLeaving",
    "TestLedger",
    "TestLimitNumbers",
    "TestLostReplies",
    "TestMinutes",
    "TestNotes",
    "TestPages",
    "TestProcesses",
    "TestPromote",
    "TestQueues",
    "TestRates",
    "TestReap",
    "TestRetention",
    "TestRetry",
    "TestRetryAndKeys",
    "TestScopes",
    "TestSettings",
    "TestShares",
    "TestStore",
    "TestSyncEnqueue",
    "TestThrottle",
    "TestTicks",
    "TestTimes",
    "TestTimetable",
    "TestTotals",
    "TestTransitions",
    "TestTwoStores",
    "TestVitals",
    "TestWaking",
    "TestWalk",
    "clock",
    "second_store",
    "store",
    "worker",
]
