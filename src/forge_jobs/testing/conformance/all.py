"""Everything a backend's test module imports: the fixtures and every test class."""

from .breakdowns import TestKindCounts, TestPeriods, TestTagDays
from .cron_schedules import TestCronSchedules, TestTicks
from .events import TestEventPages, TestEvents, TestSending
from .fixtures import clock, open_transaction, second_store, store, worker
from .jobs_bulk import TestBulk, TestDelete, TestReschedule, TestRetry
from .jobs_cancel import TestCancel
from .jobs_declare import TestDeclare, TestRoute
from .jobs_dedupe import TestDedupe, TestKeyRelease, TestRetryAndKeys
from .jobs_due import TestExpiry, TestPromote
from .jobs_enqueue import TestEnqueue
from .jobs_error_groups import TestErrorGroups
from .jobs_exchange import TestClaims, TestReplies
from .jobs_fence import TestFence, TestLostReplies
from .jobs_lanes import TestLanes
from .jobs_liveness import TestDeregister, TestReap
from .jobs_orders import TestOrders
from .jobs_pages import TestGet, TestPages
from .jobs_parents import TestParents
from .jobs_random import TestRandomCalls
from .jobs_retention import TestRetention
from .jobs_running import TestNotes, TestRelease
from .jobs_scopes import TestScopes
from .jobs_successors import TestSuccessors
from .jobs_throttle import TestBudgets, TestThrottle
from .jobs_tracebacks import TestProgressAtTheEnd, TestTracebacks
from .jobs_transitions import TestTransitions
from .limit_changes import TestLimitChanges
from .limits import TestCaps, TestLimitKeys, TestLimitNumbers, TestRates
from .metrics import TestCounters, TestMinutes
from .metrics_audit import TestAudit
from .metrics_times import TestFlow, TestTimes, TestTotals, TestVitals
from .processes import TestLeadership, TestProcesses
from .queues import TestKinds, TestQueues
from .schedules import TestTokenBuckets
from .settings import TestSettings, TestUpdates
from .shares import TestShares
from .steps import TestClaimedSteps, TestSteps
from .steps_finish import TestFailedRuns, TestFinishSteps, TestRestart
from .steps_operators import TestRetryFrom, TestStepActions
from .steps_transactions import TestStepTransactions
from .store import TestNotifications, TestStore, TestSyncEnqueue, TestTwoStores
from .waits import TestDeadlines, TestSuspend, TestSuspendedLimits, TestWaitChecks

__all__ = [
    "TestAudit",
    "TestBudgets",
    "TestBulk",
    "TestCancel",
    "TestCaps",
    "TestClaimedSteps",
    "TestClaims",
    "TestCounters",
    "TestCronSchedules",
    "TestDeadlines",
    "TestDeclare",
    "TestDedupe",
    "TestDelete",
    "TestDeregister",
    "TestEnqueue",
    "TestErrorGroups",
    "TestEventPages",
    "TestEvents",
    "TestExpiry",
    "TestFailedRuns",
    "TestFence",
    "TestFinishSteps",
    "TestFlow",
    "TestGet",
    "TestKeyRelease",
    "TestKindCounts",
    "TestKinds",
    "TestLanes",
    "TestLeadership",
    "TestLimitChanges",
    "TestLimitKeys",
    "TestLimitNumbers",
    "TestLostReplies",
    "TestMinutes",
    "TestNotes",
    "TestNotifications",
    "TestOrders",
    "TestPages",
    "TestParents",
    "TestPeriods",
    "TestProcesses",
    "TestProgressAtTheEnd",
    "TestPromote",
    "TestQueues",
    "TestRandomCalls",
    "TestRates",
    "TestReap",
    "TestRelease",
    "TestReplies",
    "TestReschedule",
    "TestRestart",
    "TestRetention",
    "TestRetry",
    "TestRetryAndKeys",
    "TestRetryFrom",
    "TestRoute",
    "TestScopes",
    "TestSending",
    "TestSettings",
    "TestShares",
    "TestStepActions",
    "TestStepTransactions",
    "TestSteps",
    "TestStore",
    "TestSuccessors",
    "TestSuspend",
    "TestSuspendedLimits",
    "TestSyncEnqueue",
    "TestTagDays",
    "TestThrottle",
    "TestTicks",
    "TestTimes",
    "TestTokenBuckets",
    "TestTotals",
    "TestTracebacks",
    "TestTransitions",
    "TestTwoStores",
    "TestUpdates",
    "TestVitals",
    "TestWaitChecks",
    "clock",
    "open_transaction",
    "second_store",
    "store",
    "worker",
]
