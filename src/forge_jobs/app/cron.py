"""``@forge.cron`` and forge.toml: declared schedules, kept here until a worker stores them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from forge_jobs.client.options import check_names
from forge_jobs.client.task import Task
from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core import names, payload
from forge_jobs.core.errors import BadArguments, BadConfig, BadOption
from forge_jobs.core.instant import Duration
from forge_jobs.core.job import NewJob
from forge_jobs.core.schedule import CronSpec

T = TypeVar("T", bound=Task[..., Any])


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule beside its name and expression.

    ``payload``: the task's arguments by name. ``tz``: the time zone of the expression, default UTC.
    ``missed``: for ticks that no worker fired in time: "skip" them, fire "once" for all, or fire
    "all", at most ``missed_limit``. ``overlap="skip"``: no new job while the job of an earlier tick
    has not ended. ``jitter``: start up to that much later. ``queue`` and ``max_attempts`` replace
    those of the task.
    """

    payload: Mapping[str, Any]
    tz: str
    missed: Literal["skip", "once", "all"]
    missed_limit: int
    overlap: Literal["skip", "allow"]
    jitter: Duration
    queue: str
    max_attempts: int


class CronOptions(ScheduleOptions, total=False):
    """The options of ``@forge.cron(...)``: those of a schedule, and its name.

    >>> @forge.cron("0 9 * * mon-fri", tz="Europe/Paris", missed="once", overlap="skip")
    ... @forge.task
    ... def report() -> None: ...
    """

    name: str


_NAMES = ("name", *ScheduleOptions.__annotations__)


class DeclaredSchedules:
    """The schedules that one Forge declares: by its decorators, and in forge.toml."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]]) -> None:
        self._tasks = tasks
        self._specs: dict[str, CronSpec] = {}

    def decorator(self, expression: str, options: Mapping[str, Any]) -> Callable[[T], T]:
        """A decorator that declares a schedule for a task and returns the task."""
        where = f"forge.cron({expression!r})"
        check_names(options, _NAMES, where=where)

        def declare(task: T) -> T:
            if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise BadOption(f"{where} needs a task: put it above @forge.task, not below it")
            if self._tasks.get(task.kind) is not task:
                raise BadOption(f"{where}: task {task.kind!r} belongs to another Forge")
            spec = self.spec(task.kind, expression, options, where=where)
            if spec.name in self._specs:
                raise BadOption(
                    f"{where}: schedule {spec.name!r} is declared twice: "
                    'give the second one another name with name="..."'
                )
            self._specs[spec.name] = spec
            return task

        return declare

    def spec(
        self, kind: str, expression: str, options: Mapping[str, Any], *, where: str
    ) -> CronSpec:
        """A checked schedule; its arguments are checked if the task is registered here."""
        from forge_jobs.core.schedule_ticks import spec as checked_spec

        given = dict(options)
        job, _ = self.job(kind, given.pop("payload", None), where)
        return checked_spec(job, expression, where=where, **given)

    def with_file(self, file: Sequence[CronSpec]) -> list[CronSpec]:
        """All declared schedules, with those of forge.toml."""
        found = dict(self._specs)
        for spec in file:
            where = f"forge.toml: schedules.{spec.name}"
            if spec.name in found:
                raise BadConfig(f"{where} is declared in the code as well: choose another name")
            found[spec.name] = self._completed(spec, where)
        return list(found.values())

    def _completed(self, spec: CronSpec, where: str) -> CronSpec:
        from msgspec.structs import replace

        from forge_jobs.core.schedule_ticks import template_of

        job, _ = self.job(spec.kind, payload.decode(spec.payload), where)
        return replace(spec, payload=job.payload, template=template_of(job))

    def job(self, kind: str, arguments: object, where: str) -> tuple[NewJob, bool]:
        """The request for a job with these arguments, and whether the task is registered here,
        which checks them."""
        task = self._tasks.get(kind)
        if task is None:
            data = payload.encode({} if arguments is None else arguments, what=f"{where}: payload")
            return NewJob(kind=names.kind_name(kind), queue=DEFAULT_QUEUE, payload=data), False
        try:
            return task.bind_payload(arguments), True
        except BadArguments as error:
            raise BadArguments(
                f"{where}: {error}; give its arguments with payload={{...}}"
            ) from error
