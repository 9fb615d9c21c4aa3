"""Heartbeats for a worker loop, sent from the I/O thread while the handler runs."""

from forge_jobs.kit.clock import Clock
from forge_jobs.kit.entropy import Entropy
from forge_jobs.kit.service import Next, RunsOn, ServiceLoop, StopFlag, run_service
from forge_jobs.store.store import Store

from .held_jobs import HeldJobs
from .job import Job

_HEARTBEATS_PER_LEASE = 5
_CONTROL_S = 1.0


class Heartbeats:
    """Renews the lease of the running job, and reads whether it was cancelled.

    After ``timeout_s`` it lets the lease expire: a function that blocks its thread cannot be
    stopped, but it must not hold its job for ever.
    """

    name = "pull-heartbeats"
    runs_on = RunsOn.EVERY_PROCESS

    def __init__(
        self,
        held: HeldJobs,
        store: Store,
        *,
        clock: Clock,
        entropy: Entropy,
        lease_s: float,
        timeout_s: float | None,
    ) -> None:
        self._held = held
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._interval_s = lease_s / _HEARTBEATS_PER_LEASE
        self._timeout_s = timeout_s
        self._job: Job | None = None
        self._started_at = 0.0
        self._sent_at = 0.0

    def set_job(self, job: Job | None) -> None:
        """Send heartbeats for this job from now on, instead of the last one."""
        self._started_at = self._sent_at = self._clock.mono()
        self._job = job

    async def run(self) -> None:
        """Run until cancelled."""
        await run_service(
            self,
            ServiceLoop(
                clock=self._clock, entropy=self._entropy, stop=StopFlag(), is_leader=_always
            ),
        )

    async def tick(self) -> Next:
        """Send a heartbeat if one is due, and read cancel requests."""
        job, following = self._job, Next.after(min(self._interval_s, _CONTROL_S))
        if job is None or job.claim is None or job.signals.lost:
            return following
        now = self._clock.mono()
        if self._timeout_s is not None and now - self._started_at > self._timeout_s:
            return following
        if now - self._sent_at >= self._interval_s:
            await self._held.aheartbeat(self._store, job, job.claim)
            self._sent_at = now
        else:
            await self._held.read_cancel(self._store, job, job.claim)
        return following


async def _always() -> bool:
    return True
