"""Django tasks with options of Forge Jobs, and the requests that their calls are stored as.

``@task(max_attempts=5)`` passes options to ``ForgeTask`` on Django 6.1 and with the backport;
``@forge_options(max_attempts=5)`` below ``@task`` does so everywhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeVar, Unpack, cast

from msgspec import structs

from forge_jobs.client.options import TaskOptions, check_names, job_fields, task_settings
from forge_jobs.core.errors import Invalid
from forge_jobs.core.instant import Instant, from_datetime
from forge_jobs.core.job import NewJob, Successor
from forge_jobs.core.limit_key import limit_key
from forge_jobs.core.limits import with_declared

from .arguments import Arguments
from .django_api import BaseTask, InvalidTask, timezone

T = TypeVar("T")
_ATTRIBUTE: Final = "__forge_options__"
_OF_TASKS: Final = (
    "max_attempts", "timeout", "soft_timeout", "retry", "scopes", "on_dead", "cpu",
    "payload_limit", "tags", "concurrency", "per", "rate", "lane", "order",
)  # fmt: skip
_OF_JOBS: Final = ("delay", "expires", "dedupe_key", "dedupe_for", "unique_while")
_NAMES: Final = (*_OF_TASKS, *_OF_JOBS)


@dataclass(frozen=True, kw_only=True)
class ForgeTask(BaseTask):
    """A Django task with the options of ``TaskOptions``, and those of ``JobOptions`` for
    ``using``. None: not given. What is derived from it is kept beside its fields, so that a copy
    makes its own."""

    run_after: datetime | None = None
    max_attempts: int | None = None
    timeout: Any = None
    soft_timeout: Any = None
    retry: Any = None
    scopes: Any = None
    on_dead: Any = None
    cpu: bool | None = None
    payload_limit: int | None = None
    tags: Any = None
    concurrency: int | None = None
    per: str | None = None
    rate: str | None = None
    lane: str | None = None
    order: str | None = None
    delay: Any = None
    expires: Any = None
    dedupe_key: str | None = None
    dedupe_for: Any = None
    unique_while: str | None = None

    def __post_init__(self) -> None:
        for name, value in getattr(self.func, _ATTRIBUTE, {}).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        BaseTask.__post_init__(self)

    def using(self, **changes: Any) -> Any:
        """A task with other values; takes the options of single jobs as well."""
        known = ("priority", "queue_name", "run_after", "backend", *_NAMES)
        for name in changes:
            if name not in known:
                raise TypeError(f"using() got an unexpected keyword argument {name!r}")
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(cast("Any", self), **given)


def forge_options(**options: Unpack[TaskOptions]) -> Callable[[T], T]:
    """Options of Forge Jobs for a task, on every version of Django::

    @task(queue_name="mail")
    @forge_options(max_attempts=5, concurrency=5, per="args.host")
    def send(host: str) -> None: ...
    """
    where = "@forge_options(...)"
    try:
        check_names(options, _OF_TASKS, where=where)
    except Invalid as error:
        raise TypeError(str(error)) from error

    def decorate(target: T) -> T:
        if isinstance(target, BaseTask):
            raise TypeError(f"{where} goes below @task, next to the function")
        setattr(target, _ATTRIBUTE, dict(options))
        return target

    return decorate


class TaskCalls:
    """What is derived from a task once, and makes the requests for its calls."""

    def __init__(self, task: Any, defaults: Mapping[str, Any]) -> None:
        self.kind = kind = f"{task.func.__module__}.{task.func.__qualname__}"
        self.where = where = f"task {kind!r}"
        given = {name: getattr(task, name, None) for name in _NAMES}
        own = {name: value for name, value in given.items() if value is not None}
        options = {**defaults, **{name: own[name] for name in _OF_TASKS if name in own}}
        self.on_dead = options.pop("on_dead", None)
        self.arguments = Arguments(task.func, takes_context=task.takes_context)
        self.settings = settings = task_settings({**options, "queue": task.queue_name}, where=where)
        declared = settings.declared(kind)
        self.declared = declared
        self.template = NewJob(
            kind=kind,
            queue=task.queue_name,
            # Django: larger first. Forge Jobs: lower first.
            priority=-int(task.priority),
            max_attempts=settings.max_attempts,
            timeout_s=settings.timeout_s,
            tags=settings.tags,
            lane=settings.lane,
            order=settings.order,
            track=declared is not None and with_declared(None, declared, 0).tracked,
            on_dead=_successor(self.on_dead, where),
            options=settings.options,
        )
        changes = _job_changes({name: own[name] for name in _OF_JOBS if name in own}, where)
        if task.run_after is not None:
            changes["run_at"] = _instant(task.run_after)
        self._template = structs.replace(self.template, **changes) if changes else self.template

    def request(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        """The request for a call. TypeError or ValueError for arguments that cannot be stored."""
        settings = self.settings
        data = self.arguments.encode(args, kwargs, limit=settings.payload_limit, what=self.where)
        if settings.per is None:
            return structs.replace(self._template, payload=data)
        key = limit_key(self.kind, settings.per, data)
        return structs.replace(self._template, payload=data, limit_key=key)


def calls_of(task: Any, defaults: Mapping[str, Any]) -> TaskCalls:
    """The calls of a task; kept with it where it has a place for them. InvalidTask for options
    that do not fit."""
    try:
        return task.calls
    except AttributeError:
        pass
    try:
        made = TaskCalls(task, defaults)
    except Invalid as error:
        raise InvalidTask(str(error)) from error
    if isinstance(task, ForgeTask):
        object.__setattr__(task, "calls", made)
    return made


def _job_changes(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    return job_fields(options, where=f"{where}.using(...)") if options else {}


def _successor(task: Any, where: str) -> Successor | None:
    """The task that is enqueued when a job dies; its one argument is named ``job``."""
    if task is None:
        return None
    if not isinstance(task, BaseTask):
        raise InvalidTask(f"{where}: on_dead={task!r} must be a task")
    found: Any = task
    template = calls_of(found, {}).template
    return Successor(
        template.kind,
        template.queue,
        template.max_attempts,
        priority=template.priority,
        timeout_s=template.timeout_s,
        tags=template.tags,
        options=template.options,
    )


def _instant(moment: datetime) -> Instant:
    aware = timezone.make_aware(moment) if timezone.is_naive(moment) else moment
    return from_datetime(aware, field="run_after")
