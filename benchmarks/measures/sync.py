"""Draining `def` no-op jobs: the same as `drain`, with handlers that run in our threads.

Peers' handlers are all synchronous: Huey's threads and persist-queue's loop at FULL, the loops of
litequeue and persist-queue at NORMAL. What each keeps and acknowledges: their modules.
"""

from __future__ import annotations

from benchmarks import targets
from benchmarks.measures.drain import Drain


class Sync(Drain):
    name = "def"
    title = "drain of def no-op jobs, one worker process"
    what = "def no-op"
    kind = "noop_def"
    ours_full = "ours def FULL"
    ours_default = "ours def, default"
    ours_normal = "ours def NORMAL"
    judged = (targets.DEF_FULL, targets.DEF_NORMAL)
    whole_jobs = 30_000
    quick_peers = ("huey, 1 thread", "litequeue")
