"""Takes over new claims: finds the handler, chooses the executor, fills the local queue."""

from collections.abc import Sequence

from forge_jobs.core.declaration import is_undeclared
from forge_jobs.core.job import ClaimedJob
from forge_jobs.core.outcome import Dead, Missing
from forge_jobs.engine.running.in_flight import InFlightJobs
from forge_jobs.engine.running.registry import Handler, HandlerRegistry, RunIn
from forge_jobs.engine.running.run import Run, RunOutcome

from .local_queue import LocalQueue
from .local_queues import LocalQueues
from .undeclared_jobs import UndeclaredJobs

# Looked up once: on Python 3.11 each access to an enum member costs as much as a function call.
_LOOP = RunIn.LOOP


class Dispatcher:
    """Turns claimed jobs into runs. Jobs that cannot run here are finished at once."""

    def __init__(
        self,
        in_flight: InFlightJobs,
        local_queues: LocalQueues,
        handlers: HandlerRegistry,
        undeclared_jobs: UndeclaredJobs,
        *,
        isolate_from: int,
    ) -> None:
        self._in_flight = in_flight
        self._local_queues = local_queues
        self._handlers = handlers
        self._undeclared_jobs = undeclared_jobs
        self._isolate_from = isolate_from

    def accept(self, jobs: Sequence[ClaimedJob], now: float) -> None:
        """Take over new claims; nothing starts yet."""
        in_flight, get, isolate_from = self._in_flight, self._handlers.get, self._isolate_from
        held, by_name = in_flight.held, self._local_queues.by_name
        suspended: dict[str, LocalQueue] = {}
        undeclared: list[Run] = []
        for job in jobs:
            handler = get(job.kind)
            queue = by_name[job.queue]
            queue.want_left -= 1
            run = Run(job, _NO_HANDLER if handler is None else handler, in_flight, queue, now)
            held[job.key] = run
            if handler is None:
                in_flight.finish(run, RunOutcome(Missing()), now)
                continue
            options = job.options
            if options is not None and is_undeclared(options) and handler.declare is not None:
                undeclared.append(run)
                continue
            crashes = job.crashes
            alone = crashes >= isolate_from and not handler.apart
            special = alone or handler.run_in is not _LOOP
            if special and not in_flight.executors.assign(run, alone=alone):
                in_flight.finish(run, RunOutcome(Dead(_cannot_isolate(job))), now)
                continue
            if job.limit_key is not None or crashes:
                queue.suspend_prefetch(now)
                suspended[job.queue] = queue
            queue.ready.append(run)
        for queue in suspended.values():
            queue.release_prefetched()
        if undeclared:
            self._undeclared_jobs.complete(undeclared)


def _cannot_isolate(job: ClaimedJob) -> str:
    return (
        f"a worker died {job.crashes} times while running this job, and kind {job.kind!r} cannot "
        "be moved to a process of its own: define it as a task in an importable module"
    )


def _never_called(data: bytes, make_context: object) -> None:
    raise AssertionError("a job without a handler is never run")


_NO_HANDLER = Handler(kind="missing", run_in=RunIn.LOOP, call=_never_called)
