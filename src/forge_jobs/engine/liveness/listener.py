"""Receives notifications of new jobs and requests of operators. Runs on the I/O port."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from forge_jobs.engine.running.job_loop import JobLoop
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.log import log_facts
from forge_jobs.store.processes import Control
from forge_jobs.store.store import Store

from .lease_state import LeaseState

_LOG = logging.getLogger("forge_jobs.listener")
_RESUBSCRIBE_S = 1.0


class Listener:
    """Passes notifications and operators' requests to the job loop.

    Notifications that arrive before the job loop has handled one are merged with it.
    """

    def __init__(
        self,
        store: Store,
        lease_state: LeaseState,
        job_loop: JobLoop,
        *,
        clock: Clock,
        on_notify: Callable[[], None],
        on_control: Callable[[], None],
    ) -> None:
        self._store = store
        self._lease_state = lease_state
        self._job_loop = job_loop
        self._clock = clock
        self._on_notify = on_notify
        self._on_control = on_control
        self._is_posted = False
        self._last = Control(-1)

    def notify(self) -> None:
        """The store may have new jobs. May be called from any thread."""
        if not self._is_posted:
            self._is_posted = True
            self._job_loop.post(self._deliver)

    async def listen(self, queues: Sequence[str]) -> None:
        """Stay subscribed until cancelled."""
        while True:
            try:
                subscription = await self._store.subscribe(queues, self.notify)
            except Exception as error:
                text = "cannot subscribe to notifications"
                log_facts(_LOG, logging.WARNING, text, error=repr(error))
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
        """Poll for requests of operators while jobs run, until cancelled."""
        while True:
            await self._clock.sleep(every_s)
            if not is_busy() or self._lease_state.dead:
                continue
            try:
                control = await self._store.processes.control(owner())
            except Exception as error:
                _LOG.debug("cannot read control", extra={"error": repr(error)})
                continue
            changed = (control.version, control.quiet) != (self._last.version, self._last.quiet)
            if changed or control.cancels:
                self._last = control
                self._lease_state.control_inbox.append(control)
                self._job_loop.post(self._on_control)

    def _deliver(self) -> None:
        self._is_posted = False
        self._on_notify()
