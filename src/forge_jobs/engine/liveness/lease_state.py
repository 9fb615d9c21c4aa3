"""What the lease and the engine share: three fields, and nothing else."""

from collections import deque

from forge_jobs.engine.running.run import NEVER
from forge_jobs.store.processes import Control


class LeaseState:
    """Written on the I/O thread by the lease and the listener; read by the engine on the job loop.

    ``trust_until`` is the end of the trust window: until then (``clock.mono()``) no other process
    can hold our jobs. ``LocalQueues.may_start`` and ``Deadlines`` act on it. ``dead``: the store
    declared this process dead. ``control_inbox``: requests of operators, oldest first.
    """

    __slots__ = ("control_inbox", "dead", "trust_until")

    def __init__(self) -> None:
        self.trust_until = -NEVER
        self.dead = False
        self.control_inbox: deque[Control] = deque()
