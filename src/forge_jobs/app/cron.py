"""``@forge.cron`` and what else declares schedules: kept here until a worker starts."""

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
    """What a schedule may say beside its name and expression."""

    payload: Mapping[str, Any]
    tz: str
    missed: Literal["skip", "once", "all"]
    missed_limit: int
    overlap: Literal["skip", "allow"]
    jitter: Duration
    queue: str
    max_attempts: int


class CronOptions(ScheduleOptions, total=False):
    """What ``@forge.cron(...)`` takes beside the expression."""

    name: str


_NAMES = ("name", *ScheduleOptions.__annotations__)


class Declarations:
    """The schedules of one Forge: those of its decorators, and those of forge.toml."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]]) -> None:
        self._tasks = tasks
        self._said: dict[str, CronSpec] = {}

    def decorator(self, expression: str, options: Mapping[str, Any]) -> Callable[[T], T]:
        """Declares a schedule for the task it is put on, which it returns."""
        where = f"forge.cron({expression!r})"
        check_names(options, _NAMES, where=where)

        def declare(task: T) -> T:
            if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise BadOption(f"{where} needs a task: put it above @forge.task, not below it")
            if self._tasks.get(task.kind) is not task:
                raise BadOption(f"{where}: task {task.kind!r} belongs to another Forge")
            said = self.said(task.kind, expression, options, where=where)
            if said.name in self._said:
                raise BadOption(
                    f"{where}: schedule {said.name!r} is declared twice: "
                    'give the second one another name with name="..."'
                )
            self._said[said.name] = said
            return task

        return declare

    def said(
        self, kind: str, expression: str, options: Mapping[str, Any], *, where: str
    ) -> CronSpec:
        """A checked schedule; arguments are checked if the task is registered here."""
        from forge_jobs.core.schedule_ticks import spec

        given = dict(options)
        job, attempts = self.job(kind, given.pop("payload", None), where)
        given.setdefault("max_attempts", attempts)
        return spec(job, expression, where=where, **given)

    def with_file(self, file: Sequence[CronSpec]) -> list[CronSpec]:
        """Everything declared, with what forge.toml adds."""
        found = dict(self._said)
        for said in file:
            where = f"forge.toml: schedules.{said.name}"
            if said.name in found:
                raise BadConfig(f"{where} is declared in the code as well: choose another name")
            found[said.name] = self._known(said, where)
        return list(found.values())

    def _known(self, said: CronSpec, where: str) -> CronSpec:
        from msgspec.structs import replace

        from forge_jobs.core.schedule_ticks import template_of

        job, attempts = self.job(said.kind, payload.decode(said.payload), where)
        return replace(
            said,
            payload=job.payload,
            template=template_of(job),
            max_attempts=said.max_attempts or attempts,
        )

    def job(self, kind: str, arguments: object, where: str) -> tuple[NewJob, int | None]:
        """A job with these arguments, checked if the task is registered here, and the attempts its
        task gives it."""
        task = self._tasks.get(kind)
        if task is None:
            data = payload.encode({} if arguments is None else arguments, what=f"{where}: payload")
            return NewJob(kind=names.kind_name(kind), queue=DEFAULT_QUEUE, payload=data), None
        try:
            return task.bind_payload(arguments), task.settings.max_attempts
        except BadArguments as error:
            raise BadArguments(
                f"{where}: {error}; give its arguments with payload={{...}}"
            ) from error
