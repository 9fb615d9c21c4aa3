"""What the lease and the engine share: three fields, and nothing else."""

from collections import deque

from forge_jobs.engine.running.run import NEVER
from forge_jobs.store.processes import Control


class LeaseState:
    """Written by the lease, on whichever thread it runs; read by the engine before every start.

    ``trust_until``: until then (``clock.mono()``) no other process can hold our jobs. ``dead``: the
    store declared this process dead. ``mailbox``: what operators want, oldest first.
    """

    __slots__ = ("dead", "mailbox", "trust_until")

    def __init__(self) -> None:
        self.trust_until = -NEVER
        self.dead = False
        self.mailbox: deque[Control] = deque()
