"""What reaches the process from outside: hints of work, and what operators want.

Runs on the I/O port beside the lease.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from forge_jobs.engine.running.job_loop import JobLoop
from forge_jobs.kit.clock import Clock
from forge_jobs.store.processes import Control
from forge_jobs.store.store import Store

from .lease_state import LeaseState

_LOG = logging.getLogger("forge_jobs.listener")
_RESUBSCRIBE_S = 1.0


class Listener:
    """Hands hints and mail over to the job loop, at most one of each at a time."""

    def __init__(
        self,
        store: Store,
        standing: LeaseState,
        job_loop: JobLoop,
        *,
        clock: Clock,
        on_hint: Callable[[], None],
        on_mail: Callable[[], None],
    ) -> None:
        self._store = store
        self._standing = standing
        self._job_loop = job_loop
        self._clock = clock
        self._on_hint = on_hint
        self._on_mail = on_mail
        self._hinted = False
        self._last = Control(-1)

    def notify(self) -> None:
        """There may be work; from any thread."""
        if not self._hinted:
            self._hinted = True
            self._job_loop.post(self._heard)

    async def listen(self, queues: Sequence[str]) -> None:
        """Stay subscribed until cancelled."""
        while True:
            try:
                subscription = await self._store.subscribe(queues, self.notify)
            except Exception as error:
                _LOG.warning("cannot subscribe to hints", extra={"error": repr(error)})
                await self._clock.sleep(_RESUBSCRIBE_S)
                continue
            self.notify()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                await subscription.close()

    async def follow(
        self, every_s: float, owner: Callable[[], int], is_busy: Callable[[], bool]
    ) -> None:
        """Ask what operators want while jobs run, until cancelled."""
        while True:
            await self._clock.sleep(every_s)
            if not is_busy() or self._standing.dead:
                continue
            try:
                control = await self._store.processes.control(owner())
            except Exception as error:
                _LOG.debug("cannot read control", extra={"error": repr(error)})
                continue
            changed = (control.version, control.quiet) != (self._last.version, self._last.quiet)
            if changed or control.cancels:
                self._last = control
                self._standing.mailbox.append(control)
                self._job_loop.post(self._on_mail)

    def _heard(self) -> None:
        self._hinted = False
        self._on_hint()
