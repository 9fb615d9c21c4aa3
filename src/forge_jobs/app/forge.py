"""Forge: tasks, their store, and the workers that run them, in one object."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from forge_jobs import config
from forge_jobs.app.cron import CronOptions, DeclaredSchedules, T
from forge_jobs.app.decorator import TaskDecorator
from forge_jobs.app.worker import (
    EmbeddedWorker,
    Queues,
    WorkerKeywords,
    WorkerOptions,
    run_worker,
    served_queues,
)
from forge_jobs.client.job import Job
from forge_jobs.client.job_client import ReadResult
from forge_jobs.client.options import JobOptions, check_names, job_fields, limit_numbers
from forge_jobs.client.task import Task
from forge_jobs.config import EngineSettings
from forge_jobs.core import names
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Duration, seconds
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.limits import Declared, queue_limit
from forge_jobs.core.retry import Retry
from forge_jobs.engine.requests.job_requests import JobRequests
from forge_jobs.engine.requests.published_kinds_cache import PublishedKindsCache
from forge_jobs.engine.running.hooks import HookT, check_run_hook
from forge_jobs.engine.running.rate_limit import RateLimit, RateLimiter
from forge_jobs.engine.running.registry import Handler, JobHandler
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.entropy import SYSTEM_ENTROPY, Entropy
from forge_jobs.kit.hooks import Hook
from forge_jobs.store.joined import not_joined

from .forge_alerts import ForgeAlerts
from .local_run import LocalRuns
from .pending_drain import PendingDrain
from .task_registration import TaskRegistration

if TYPE_CHECKING:
    from forge_jobs.app.errors import ErrorConditions, Errors
    from forge_jobs.app.jobs import JobConditions, Jobs
    from forge_jobs.app.schedules import Schedules
    from forge_jobs.engine.drain import DrainReport

EnqueueHook: TypeAlias = Hook[NewJob, Enqueued]


class Forge(ForgeAlerts):
    """Durable background jobs: declare tasks, enqueue calls of them, run workers.

    >>> forge = Forge("memory://")  # or sqlite:///jobs.db, postgresql://user@host/db
    >>> @forge.task(queue="mail", max_attempts=5)
    ... async def send(to: str) -> str:
    ...     return f"sent to {to}"
    >>> job = send.enqueue("a@b.c")
    >>> report = forge.drain().run()  # in an application a worker runs it
    >>> job.result(timeout=10)
    'sent to a@b.c'

    Without ``url`` the address is FORGE_URL, else DATABASE_URL, else that of forge.toml, else
    ``sqlite:///forge.db``. The store is opened on first use, which also creates or upgrades the
    tables (unless FORGE_AUTO_MIGRATE=0); after ``close`` the next use opens it again. One object
    serves threads, event loops and forked children. Methods whose names begin with ``a`` are for
    coroutines.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: EngineSettings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        super().__init__(url, clock=clock, entropy=entropy)
        self.settings = settings or EngineSettings()
        self._declared: dict[str, int] = {}
        self._limiter: RateLimiter | None = None
        tasks: dict[str, Task[..., Any]] = {}
        self._requests = JobRequests(
            self.registry, PublishedKindsCache(self._access, SYSTEM_CLOCK), tasks=tasks
        )
        local = LocalRuns(self.enqueuer, self.clock, entropy, self._requests.request, self.limiter)
        self._registration = TaskRegistration(tasks, self.registry, self.client, local)
        self._schedules = DeclaredSchedules(tasks)
        self.task = TaskDecorator(self._registration.register, {})
        self.client.reader_of = self._reader
        self._access.at_fork(lambda: setattr(self, "_limiter", None))

    # ------------------------------------------------------------------ enqueue

    def enqueue(
        self, kind: str, payload: object = None, *, check: bool = True,
        **options: Unpack[JobOptions],
    ) -> Job[Any]:  # fmt: skip
        """Store a job by its kind, for producers that do not have the task's code.

        ``payload`` holds the arguments by name; ``options`` are those of ``JobOptions``, on top of
        what the task declares (docs/declared-options.md). Arguments are checked if the task is
        registered here; else, with ``check``, their names against what workers have published.

        ``forge.enqueue("send", {"to": "a@b.c"}, delay="10m")``
        """
        fields = job_fields(options, where="forge.enqueue(...)")
        self._refresh_unknown(kind)
        job = self._request(kind, payload, fields, check)
        return self.client.enqueue(job, self._reader(kind), options.get("tx"))

    async def aenqueue(
        self, kind: str, payload: object = None, *, check: bool = True,
        **options: Unpack[JobOptions],
    ) -> Job[Any]:  # fmt: skip
        """``enqueue`` for coroutines."""
        fields = job_fields(options, where="forge.aenqueue(...)")
        if not self._requests.is_current(kind):
            await self._requests.refresh()
        job = self._request(kind, payload, fields, check)
        return await self.client.aenqueue(job, self._reader(kind), options.get("tx"))

    def job(self, job_id: str) -> Job[Any]:
        """The handle of a stored job, by id; nothing is read before ``refresh``:
        ``forge.job(job.id).refresh()``."""
        return Job(self.client, job_id)

    def jobs(self, **conditions: "Unpack[JobConditions]") -> "Jobs":
        """The stored jobs that match: iterate, ``count``, ``retry``, ``cancel``, ``run_now``,
        ``reschedule``, ``delete``; see ``JobConditions`` for the conditions.

        ``forge.jobs(queue="mail", status="dead", since="1d").retry()``
        """
        from forge_jobs.app.jobs import Jobs

        return Jobs(self.client, conditions)

    def errors(self, **conditions: "Unpack[ErrorConditions]") -> "Errors":
        """The groups of failures with the same cause: iterate, ``resolve``; see
        ``ErrorConditions``.

        ``[group.title for group in forge.errors(since="1h", state="open")]``
        """
        from forge_jobs.app.errors import Errors

        return Errors(self.client, conditions)

    # ------------------------------------------------------------------ tasks and queues

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """All registered tasks, by kind."""
        return dict(self._registration.tasks)

    def queue_of(self, kind: str) -> str:
        """The queue of a kind: that of its task, else the published one, else ``default``:
        ``forge.queue_of("send")``."""
        self._refresh_unknown(kind)
        return self._requests.route(kind)

    def request(self, kind: str, payload: object = None) -> NewJob:
        """The request that ``enqueue`` would store for a kind and a payload."""
        self._refresh_unknown(kind)
        return self._request(kind, payload, {})

    def handler(self, kind: str) -> Handler | None:
        """The handler that runs jobs of this kind in this process."""
        return self.registry.get(kind)

    def register(
        self,
        handler: JobHandler,
        *,
        queue: str | None = None,
        timeout: Duration | None = None,
        soft_timeout: Duration | None = None,
        retry: Retry | None = None,
    ) -> None:
        """Register a handler object, ready-made or your own, for the jobs of its kind.

        ``forge.register(CmdExecHandler(commands={...}), queue="shell")``, then
        ``forge.enqueue("cmd_exec", {...})``.
        """
        limits = {"timeout": timeout, "soft_timeout": soft_timeout}
        self.registry.register(
            handler,
            queue=None if queue is None else names.queue_name(queue),
            retry=retry,
            **job_fields(limits, where="forge.register(...)", defaults=True),
        )

    def queue(
        self,
        name: str,
        *,
        slots: int | None = None,
        concurrency: int | None = None,
        rate: str | None = None,
        **unknown: object,
    ) -> None:
        """Declare a queue that workers of this Forge serve, with its cluster-wide slots.

        ``concurrency`` bounds how many of its jobs run at once and ``rate`` ("50/m") how often
        they start, exactly and over all processes. Slots that the queue has in the store already
        stay, and so do limits that an operator set.

        ``forge.queue("mail", concurrency=20, rate="600/m")``
        """
        where = f"forge.queue({name!r})"
        check_names(unknown, ("slots", "concurrency", "rate"), where=where)
        names.queue_name(name)
        numbers = limit_numbers({"concurrency": concurrency, "rate": rate}, where=where)
        limit = queue_limit(name)
        if numbers:
            self.registry.limits[limit] = Declared(name=limit, **numbers)
        count = config.DEFAULT_QUEUE_WORKERS if slots is None else slots
        self._declared[name] = config.slot_count(count, source=where)

    def rate_limit(self, scope: str, rate: str, *, burst: float | None = None) -> None:
        """Declare a rate limit for ``ctx.rate_limit``: ``forge.rate_limit("smtp", "50/m")``.

        It holds for the whole cluster. ``burst`` is how many permits may be taken at once; by
        default the number in the rate. A scope that exists in the store already stays as it is:
        operators change it with ``forge limits set``.
        """
        names.key_text("scope", scope)
        self.registry.rate_limits[scope] = RateLimit.of(scope, rate, burst)

    def limiter(self) -> RateLimiter:
        """The rate limiter for code outside a worker: plain calls, and ``cpu=True`` children."""
        if self._limiter is None:
            access = self._access
            self._limiter = RateLimiter(
                access.aready, access, declared=self.registry.rate_limits, clock=self.clock
            )
        return self._limiter

    def cron(self, expression: str, **options: Unpack[CronOptions]) -> Callable[[T], T]:
        """Run a task on a schedule: put ``@forge.cron("0 9 * * mon-fri", tz="Europe/Paris")`` above
        ``@forge.task()``.

        The schedule is stored when a worker starts. ``name`` defaults to the kind; the other
        options are those of ``ScheduleOptions``; see docs/cron.md.
        """
        return self._schedules.decorator(expression, options)

    @property
    def schedules(self) -> "Schedules":
        """The schedules in the store: create, edit, enable, disable, delete, trigger, list."""
        from forge_jobs.app.schedules import Schedules

        return Schedules(self.client, self._schedules, self._requests)

    # ------------------------------------------------------------------ hooks

    def around_run(self, hook: HookT) -> HookT:
        """Wrap every run: ``@forge.around_run`` on a generator function that takes the Context and
        yields once, where the job runs. Hooks nest in the order of their registration; what one
        raises is the outcome of the job. ``async def`` hooks wrap ``async def`` tasks only.
        """
        check_run_hook(hook)
        self.registry.surround(hook)
        return hook

    def around_enqueue(self, hook: EnqueueHook) -> EnqueueHook:
        """Wrap every enqueue: ``@forge.around_enqueue`` on a generator function that takes a NewJob
        and yields it once, changed or not; the ``yield`` returns what was stored. An error before
        the ``yield`` refuses the job, one after it is only logged.
        """
        if not inspect.isgeneratorfunction(hook):
            raise BadOption(
                f"around_enqueue needs a plain function with `yield job` in it; {hook!r} is none"
            )
        self.registry.around_enqueue.hooks.append(hook)
        return hook

    # ------------------------------------------------------------------ running

    def worker(
        self,
        queues: Queues | None = None,
        *,
        slots: int | None = None,
        prefix: str | None = None,
        version: str | None = None,
        worker_id: str | None = None,
        replaces: str | None = None,
        settings: EngineSettings | None = None,
        shutdown_timeout: Duration = config.DEFAULT_SHUTDOWN_TIMEOUT,
        signals: bool = False,
    ) -> EmbeddedWorker:
        """A worker in this process: ``async with forge.worker(queues=["mail", "video:2"])``.

        Leaving the block stops it gracefully: running jobs get ``shutdown_timeout`` to finish, the
        rest are released. ``slots`` counts for queues without a number. Without ``queues``: those
        of FORGE_QUEUES, else of ``forge.queue`` and forge.toml, else of the tasks. ``replaces`` is
        the host_id of a worker that is known to be dead; its jobs are free at once.
        With ``signals`` SIGTERM and SIGINT end the block and drain, a second one stops at once;
        leave it out where a web server handles them and ends its lifespan.
        """
        return EmbeddedWorker(
            WorkerOptions(
                client=self.client,
                registry=self.registry,
                requests=self._requests,
                clock=self.clock,
                entropy=self.entropy,
                settings=settings or self.settings,
                queues=lambda: self._queues(queues, slots),
                schedules=lambda: self._schedules.with_file(config.schedules()),
                prefix=prefix,
                version=version,
                worker_id=worker_id,
                replaces=replaces,
                shutdown_timeout_s=seconds(shutdown_timeout, field="shutdown_timeout"),
                signals=signals,
            )
        )

    def run(self, queues: Queues | None = None, **options: Unpack[WorkerKeywords]) -> None:
        """Run a worker here until SIGTERM or SIGINT, then drain and return; for scripts.

        ``if __name__ == "__main__": forge.run(["mail"])``. A second signal stops at once. The
        options are those of ``worker``. Refused outside of the main thread, and on a running event
        loop: use ``async with forge.worker(signals=True)`` there.
        """
        run_worker(self.worker(queues, signals=True, **options), self.aclose)

    def drain(
        self, queues: Iterable[str] | None = None, *, limit: int | None = None
    ) -> PendingDrain:
        """Run all jobs that are due, and the jobs they enqueue, here and now; for tests and
        scripts: ``await forge.drain()``, or ``forge.drain().run()`` in synchronous code.
        """
        return PendingDrain(self.adrain(queues, limit=limit))

    async def adrain(
        self, queues: Iterable[str] | None = None, *, limit: int | None = None
    ) -> "DrainReport":
        """``drain`` for coroutines: on this event loop."""
        from forge_jobs.engine.drain import drain

        await self._requests.refresh()
        with not_joined():
            return await drain(
                await self._access.aready(),
                self.registry,
                clock=self.clock,
                entropy=self.entropy,
                settings=self.settings,
                queues=None if queues is None else list(queues),
                limit=limit,
                requests=self._requests,
            )

    # ------------------------------------------------------------------ parts

    def _request(
        self, kind: str, payload: object, fields: Mapping[str, Any], check: bool = True
    ) -> NewJob:
        value: object = dict[str, Any]() if payload is None else payload
        what = f"forge.enqueue({kind!r}): the payload"
        return self._requests.request(kind, value, fields, what=what, check=check)

    def _refresh_unknown(self, kind: str) -> None:
        if not self._requests.is_current(kind):
            self._access.run(lambda store: self._requests.refresh())

    def _reader(self, kind: str) -> ReadResult | None:
        task = self._registration.tasks.get(kind)
        return None if task is None else task.signature.read_result

    def _queues(self, queues: Queues | None, slots: int | None) -> Mapping[str, int]:
        kinds = self.registry.kinds().values()
        known = list(dict.fromkeys(queue or config.DEFAULT_QUEUE for queue in kinds))
        return served_queues(queues, slots, self._declared, known)
