"""Waits for results: one poller per Forge reads all awaited jobs with one query."""

import asyncio
import threading

from forge_jobs.core.errors import Closed, NotFound, Unavailable, Unknown
from forge_jobs.core.status import is_terminal
from forge_jobs.kit.clock import Clock
from forge_jobs.kit.thread_result import ThreadResult
from forge_jobs.kit.wake import WakeFlag
from forge_jobs.store.jobs import Peek
from forge_jobs.store.store import Store

from .store_access import StoreAccess

MIN_POLL_S = 0.005
MAX_POLL_S = 0.1
GROWTH = 1.5
MAX_OUTAGE_S = 30.0
IDS_PER_CALL = 1_000


class ResultPoller:
    """Polls awaited jobs until they have ended.

    The pause between two polls grows from 5 to 100 ms while nothing ends, and starts at 5 ms again
    for each new waiter. A store that cannot be reached is retried for 30 s.
    """

    def __init__(self, access: StoreAccess, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._reset()
        access.at_fork(self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[str, list[ThreadResult[Peek]]] = {}
        self._flag: WakeFlag | None = None
        self._running = False

    def wait(self, job_id: str, reply: ThreadResult[Peek]) -> None:
        """Set ``reply`` when the job has ended; a waiter that gives up calls ``forget``."""
        with self._lock:
            self._waiters.setdefault(job_id, []).append(reply)
            running, flag = self._running, self._flag
        if not running:
            self._access.start(self._poll)
        elif flag is not None:
            flag.notify()

    def forget(self, job_id: str, reply: ThreadResult[Peek]) -> None:
        """Remove a waiter."""
        with self._lock:
            waiters = self._waiters.get(job_id)
            if waiters is not None and reply in waiters:
                waiters.remove(reply)
                if not waiters:
                    del self._waiters[job_id]

    async def _poll(self) -> None:
        flag = WakeFlag()
        with self._lock:
            # Set here and not by the caller, which may be interrupted before it starts the poll.
            if self._running:
                return
            self._running, self._flag = True, flag
        pause_s = MIN_POLL_S
        failing_since: float | None = None
        try:
            store = await self._access.aready()
            while ids := self._awaited():
                try:
                    ended = await self._read(store, ids)
                    failing_since = None
                except (Unavailable, Unknown):
                    now = self._clock.mono()
                    failing_since = now if failing_since is None else failing_since
                    if now - failing_since > MAX_OUTAGE_S:
                        raise
                    ended = False
                notified = await flag.wait(pause_s)
                pause_s = MIN_POLL_S if ended or notified else min(pause_s * GROWTH, MAX_POLL_S)
        except asyncio.CancelledError:
            self._fail(Closed("the Forge was closed while a caller waited for a result"))
            raise
        except BaseException as error:
            self._fail(error)
            raise

    def _awaited(self) -> list[str]:
        with self._lock:
            if not self._waiters:
                self._running = False
                self._flag = None
            return list(self._waiters)

    async def _read(self, store: Store, ids: list[str]) -> bool:
        any_ended = False
        for first in range(0, len(ids), IDS_PER_CALL):
            part = ids[first : first + IDS_PER_CALL]
            for job_id, peek in zip(part, await store.jobs.peek(part), strict=True):
                if peek is None:
                    missing = NotFound(
                        f"job {job_id} does not exist here: it was deleted or is past its retention"
                    )
                    self._reply(job_id, missing)
                elif is_terminal(peek.status):
                    self._reply(job_id, peek)
                else:
                    continue
                any_ended = True
        return any_ended

    def _reply(self, job_id: str, ended: Peek | BaseException) -> None:
        with self._lock:
            waiters = self._waiters.pop(job_id, [])
        for reply in waiters:
            if isinstance(ended, BaseException):
                reply.set_exception(ended)
            else:
                reply.set_result(ended)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            ids = list(self._waiters)
            self._running = False
            self._flag = None
        for job_id in ids:
            self._reply(job_id, error)
