"""Heartbeats for a worker loop, sent from the I/O thread while the handler runs."""

from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.kit.service import Next, RunsOn, ServiceLoop, StopFlag, run_service
from forge_jobs.store.store import Store

from .held_jobs import HeldJobs
from .job import Job

_BEATS_PER_LEASE = 5
_LOOK_S = 1.0


class Heartbeats:
    """Renews the lease of the job that is being handled, and hears whether it was cancelled.

    After ``timeout_s`` it lets the lease run out: a function that blocks its thread cannot be
    stopped, but it must not keep its job for ever.
    """

    name = "pull-keeper"
    runs_on = RunsOn.EVERY_PROCESS

    def __init__(
        self,
        holding: HeldJobs,
        store: Store,
        *,
        clock: Clock,
        entropy: Entropy,
        lease_s: float,
        timeout_s: float | None,
    ) -> None:
        self._holding = holding
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._beat_s = lease_s / _BEATS_PER_LEASE
        self._timeout_s = timeout_s
        self._job: Job | None = None
        self._began = 0.0
        self._beaten = 0.0

    def watch(self, job: Job | None) -> None:
        """Keep this job alive from now on, instead of the last one."""
        self._began = self._beaten = self._clock.mono()
        self._job = job

    async def run(self) -> None:
        """Until cancelled."""
        await run_service(
            self,
            ServiceLoop(
                clock=self._clock, entropy=self._entropy, stop=StopFlag(), is_leader=_always
            ),
        )

    async def tick(self) -> Next:
        """Beat if it is time, and look for a cancel request."""
        job, following = self._job, Next.after(min(self._beat_s, _LOOK_S))
        if job is None or job.claim is None or job.signals.lost:
            return following
        now = self._clock.mono()
        if self._timeout_s is not None and now - self._began > self._timeout_s:
            return following
        if now - self._beaten >= self._beat_s:
            await self._holding.aheartbeat(self._store, job, job.claim)
            self._beaten = now
        else:
            await self._holding.look(self._store, job, job.claim)
        return following


async def _always() -> bool:
    return True
