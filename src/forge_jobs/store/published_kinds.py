"""What workers have published about kinds: read by whoever stores a job of a task it does not have.

This is the one place where published facts are applied to a job. A fact that is to hold whichever
way a job comes in (by kind, by request, by schedule, as a copy) is applied in ``apply``.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import NewJob
from forge_jobs.core.limit_key import apply_limit
from forge_jobs.core.limits import Limit, task_limit
from forge_jobs.core.schedule import CronSpec

from .store import Store


class PublishedKinds(Struct, frozen=True):
    """A snapshot: the queue of each kind, and the limits by name (``core.limits.task_limit``)."""

    queues: Mapping[str, str] = {}
    limits: Mapping[str, Limit] = {}

    @classmethod
    async def read(cls, store: Store) -> "PublishedKinds":
        """What the store says now: two queries."""
        queues = await store.queues.kinds()
        return cls(queues, {limit.name: limit for limit in await store.limits.all()})

    def apply(self, job: NewJob) -> NewJob:
        """The job with what is published for its kind: its track and its limit key."""
        return apply_limit(job, self.limits.get(task_limit(job.kind)))

    def scheduled_job(
        self,
        schedule: CronSpec,
        *,
        declared: str | None = None,
        route: Callable[[str], str] | None = None,
        tick: Instant | None = None,
        run_at: Instant | None = None,
    ) -> NewJob:
        """The job of one tick of a schedule; without ``tick`` a person fires it.

        Its queue is the schedule's own, else ``declared`` (what this program's task says), else the
        published one, else what ``route`` says, else ``default``.
        """
        # Imported here: producers without schedules do not load the calendar.
        from forge_jobs.core.schedule_ticks import job_for

        queue = schedule.queue or declared or self.queues.get(schedule.kind)
        if queue is None:
            queue = DEFAULT_QUEUE if route is None else route(schedule.kind)
        return self.apply(job_for(schedule, queue=queue, tick=tick, run_at=run_at))
