"""The options of tasks and of single jobs: their names, their checks, their ranges."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NoReturn, TypedDict

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core import names, payload
from forge_jobs.core.declaration import check_soft_timeout
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Duration, from_datetime, seconds
from forge_jobs.core.job import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    LaneOrder,
    UniqueWhile,
)
from forge_jobs.core.limit_key import check_path
from forge_jobs.core.limits import MAX_CONCURRENCY, Declared, rate_of, task_limit
from forge_jobs.core.retry import Retry

MAX_PRIORITY = 1_000_000_000
MAX_ATTEMPTS = 1_000_000
MAX_PAYLOAD_LIMIT = 64 << 20


class JobOptions(TypedDict, total=False):
    """The options of single jobs: ``task.using(...)`` and ``forge.enqueue(kind, payload, ...)``.

    ``delay``: start that much later. ``run_at`` (or ``at``): start at that aware datetime, at once
    if it has passed.
    ``priority``: lower starts first, default 0. ``queue``: another queue than the task's.
    ``max_attempts``: attempts before the job is dead. ``timeout``: limit of one run; None = none.
    ``soft_timeout``: so long into a run ``ctx.soft_timeout_reached`` becomes true; None = never.
    ``expires``: cancelled if it has not started by then.
    ``dedupe_key``: at most one live job of this kind has the key; a second enqueue returns the
    first job. ``dedupe_for``: the key stays taken that long after the job has ended.
    ``unique_while="waiting"``: the key is free again as soon as the job starts.
    ``tags``: texts to find the job by. ``lane``: jobs of one lane start one after the other;
    ``order="strict"``: only when the one before has ended, "none": the lane has no order.
    ``tx``: a connection to the same database; the job exists once its transaction commits.
    Durations are texts such as "1h30m", seconds, or timedelta.

    >>> job = send.using(delay="10m", dedupe_key="welcome:42", tags=["vip"]).enqueue("a@b.c")
    >>> job.refresh().tags
    ('vip',)
    """

    delay: Duration
    run_at: datetime
    at: datetime
    priority: int
    queue: str
    max_attempts: int
    timeout: Duration | None
    soft_timeout: Duration | None
    expires: Duration | datetime
    dedupe_key: str
    dedupe_for: Duration
    unique_while: Literal["live", "waiting"]
    tags: Sequence[str]
    lane: str
    order: Literal["none", "serial", "strict"]
    tx: object


class TaskOptions(TypedDict, total=False):
    """The options of a task: ``@forge.task(...)``.

    ``kind``: its name in the store, default the function's name. ``queue``: default "default".
    ``max_attempts``: attempts before a job is dead, default 5. ``timeout``: limit of one run.
    ``soft_timeout``: a shorter one, after which the handler should wrap up.
    ``retry``: a ``Retry`` with the waits between attempts and the errors that are retried.
    ``scopes``: external resources that throttle; a closed one holds back all their tasks.
    ``on_dead``: a task that is enqueued in the transaction in which a job dies; its one argument,
    named ``job``, is a ``DeadJob``. ``cpu=True``: a ``def`` at the top level of a module that runs
    in a child process, which is killed on timeout and cancel.
    ``payload_limit``: largest arguments in bytes, up to 64 MiB.
    ``priority``, ``tags``, ``lane``, ``order``: defaults for its jobs, see ``JobOptions``.
    ``concurrency``: how many jobs run at once, over all processes; with ``per="args.host"`` for
    each value of that argument. ``rate``: how often jobs start, for example "50/m".

    >>> @forge.task(queue="api", max_attempts=8, timeout="30s", concurrency=5, per="args.host")
    ... async def fetch(host: str, path: str) -> None: ...
    """

    kind: str
    queue: str
    max_attempts: int
    timeout: Duration | None
    soft_timeout: Duration | None
    retry: Retry | None
    scopes: Sequence[str]
    on_dead: object
    cpu: bool
    payload_limit: int
    priority: int
    tags: Sequence[str]
    concurrency: int
    per: str
    rate: str
    lane: str
    order: Literal["none", "serial", "strict"]


_JOB_NAMES = tuple(JobOptions.__annotations__)
_TASK_NAMES = tuple(TaskOptions.__annotations__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """The checked options of a task; ``kind`` and ``on_dead`` are checked at registration."""

    queue: str = DEFAULT_QUEUE
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout_s: float | None = None
    retry: Retry | None = None
    scopes: tuple[str, ...] = ()
    cpu: bool = False
    payload_limit: int = payload.MAX_PAYLOAD_BYTES
    priority: int = DEFAULT_PRIORITY
    tags: tuple[str, ...] = ()
    concurrency: int | None = None
    per: str | None = None
    rate_per_s: float | None = None
    burst: float = 1.0
    lane: str | None = None
    order: LaneOrder = LaneOrder.NONE
    options: Mapping[str, Any] | None = None

    def declared(self, kind: str) -> Declared | None:
        """The limits that the task declares; None when it declares none."""
        if self.concurrency is None and self.rate_per_s is None and not self.scopes:
            return None
        return Declared(
            name=task_limit(kind),
            concurrency=self.concurrency,
            per=self.per,
            rate_per_s=self.rate_per_s,
            burst=self.burst,
            scopes=self.scopes,
        )


def task_settings(options: Mapping[str, Any], *, where: str = "@forge.task(...)") -> TaskSettings:
    """Check the options of a task; ``kind`` and ``on_dead`` are left to the caller."""
    check_names(options, _TASK_NAMES, where=where)
    if "per" in options and "concurrency" not in options:
        raise BadOption(f"{where}: per= needs concurrency=: so many jobs at once for each value")
    fields: dict[str, Any] = {**_limits(options, where=where), **lane_fields(options, where=where)}
    for name, value in options.items():
        match name:
            case "queue":
                fields["queue"] = names.queue_name(value)
            case "max_attempts":
                fields["max_attempts"] = _whole(name, value, 1, MAX_ATTEMPTS)
            case "timeout":
                fields["timeout_s"] = _timeout(name, value)
            case "retry":
                fields["retry"] = _instance(name, value, Retry, "Retry(base='15s', max='1h')")
            case "scopes":
                fields["scopes"] = _names("scopes", "scope", value)
            case "cpu":
                fields["cpu"] = _switch(name, value)
            case "payload_limit":
                fields["payload_limit"] = _whole(name, value, 1, MAX_PAYLOAD_LIMIT)
            case "priority":
                fields["priority"] = _whole(name, value, -MAX_PRIORITY, MAX_PRIORITY)
            case "tags":
                fields["tags"] = names.tag_list(_listed("tags", value))
            case _:
                pass
    rare = _rare_options(_given(options))
    check_soft_timeout(fields.get("timeout_s"), rare, where=where)
    return TaskSettings(**fields, options=rare)


def job_fields(
    options: Mapping[str, Any],
    *,
    where: str = "using(...)",
    defaults: bool = False,
) -> dict[str, Any]:
    """The fields of a NewJob that these options set; ``tx`` is left to the caller.

    ``core.declaration.with_fields`` puts them on top of what the task declares. ``defaults``: they
    are a handler's, for jobs without a value: None is as good as left out.
    """
    if defaults:
        options = _given(options)
    check_names(options, _JOB_NAMES, where=where)
    if sum(name in options for name in ("delay", "run_at", "at")) > 1:
        raise BadOption(f"{where}: give only one of delay=, run_at= and at=")
    if "dedupe_key" not in options:
        for name in ("dedupe_for", "unique_while"):
            if name in options:
                raise BadOption(f"{where}: {name}= needs dedupe_key=")
    fields: dict[str, Any] = lane_fields(options, where=where)
    for name, value in options.items():
        fields.update(_job_field(name, value))
    rare = _rare_options(options)
    if rare is not None:
        fields["options"] = rare
        check_soft_timeout(fields.get("timeout_s"), rare, where=where)
    return fields


def _job_field(name: str, value: Any) -> dict[str, Any]:  # noqa: PLR0911
    match name:
        case "delay":
            return {"delay_s": seconds(value, field="delay")}
        case "run_at" | "at":
            return {"run_at": _instant(name, value)}
        case "priority":
            return {"priority": _whole(name, value, -MAX_PRIORITY, MAX_PRIORITY)}
        case "queue":
            return {"queue": names.queue_name(value)}
        case "max_attempts":
            return {"max_attempts": _whole(name, value, 1, MAX_ATTEMPTS)}
        case "timeout":
            return {"timeout_s": _timeout(name, value)}
        case "expires":
            if isinstance(value, datetime):
                return {"expires_at": from_datetime(value, field="expires")}
            return {"expires_s": seconds(value, field="expires")}
        case "dedupe_key":
            return {"dedupe_key": names.key_text("dedupe_key", value)}
        case "dedupe_for":
            return {"dedupe_for_s": seconds(value, field="dedupe_for")}
        case "unique_while":
            return {"unique_while": _choice(name, value, UniqueWhile)}
        case "tags":
            return {"tags": names.tag_list(_listed("tags", value))}
        case "tx" if value is None:
            raise BadOption("tx=None is no connection: leave tx out to enqueue without one")
        case _:
            return {}


def check_names(options: Mapping[str, Any], known: Sequence[str], *, where: str) -> None:
    """BadOption for the first unknown option, with the nearest known name."""
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise BadOption(
                f"{where}: unknown option {name!r}{hint} Known options: {', '.join(known)}"
                if near
                else f"{where}: unknown option {name!r}. Known options: {', '.join(known)}"
            )


def _rare_options(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options without a field of their own, checked, by their names in the store. None when
    there are none."""
    rare: dict[str, Any] = {}
    for name, (stored, check) in _RARE_OPTIONS.items():
        if name in options:
            rare[stored] = check(name, options[name])
    return rare or None


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def lane_fields(options: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """``lane`` and ``order``: a lane without an order is serial, an order needs a lane."""
    order = _choice("order", options["order"], LaneOrder) if "order" in options else None
    if "lane" not in options:
        if order not in (None, LaneOrder.NONE):
            raise BadOption(f"{where}: order={str(order)!r} needs lane=, the name of the lane")
        return {} if order is None else {"order": order}
    lane = names.key_text("lane", options["lane"])
    return {"lane": lane, "order": LaneOrder.SERIAL if order is None else order}


def limit_numbers(options: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Fields for ``concurrency`` and ``rate`` of a task or queue."""
    fields: dict[str, Any] = {}
    if options.get("concurrency") is not None:
        fields["concurrency"] = _whole(
            f"{where}: concurrency", options["concurrency"], 1, MAX_CONCURRENCY
        )
    if options.get("rate") is not None:
        per_s, burst = rate_of(options["rate"], field=f"{where}: rate")
        fields |= {"rate_per_s": per_s, "burst": burst}
    return fields


def _limits(options: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    fields = limit_numbers(options, where=where)
    if "per" in options:
        fields["per"] = check_path(options["per"], where=where)
    return fields


def _whole(name: str, value: Any, minimum: int, maximum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise BadOption(f"{name}={value!r} must be a whole number from {minimum:,} to {maximum:,}")
    return value


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadOption(f"{name}={value!r} must be True or False")
    return value


def _timeout(name: str, value: Any) -> float | None:
    if value is None:
        return None
    span = seconds(value, field=name)
    if span <= 0:
        raise BadOption(f"{name}={value!r} must be longer than zero; None means no limit")
    return span


def _instant(name: str, value: Any) -> int:
    if not isinstance(value, datetime):
        remedy = "; for a span of time use delay=" if isinstance(value, int | timedelta) else ""
        raise BadOption(f"{name}={value!r} must be an aware datetime{remedy}")
    return from_datetime(value, field=name)


def _choice(name: str, value: Any, choices: Any) -> Any:
    try:
        return choices(value)
    except ValueError:
        known = ", ".join(repr(str(item)) for item in choices)
        raise BadOption(f"{name}={value!r} is unknown: use one of {known}") from None


def _instance(name: str, value: Any, wanted: type, example: str) -> Any:
    if value is not None and not isinstance(value, wanted):
        raise BadOption(f"{name}={value!r} must be a {wanted.__name__}, for example {example}")
    return value


def _names(name: str, item: str, value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names.key_text(item, text) for text in _listed(name, value)))


def _listed(name: str, value: Any) -> Iterable[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        _refuse(name, value)
    return value  # pyright: ignore[reportUnknownVariableType]


def _refuse(name: str, value: Any) -> NoReturn:
    raise BadOption(f"{name}={value!r} must be a list of texts, for example {name}=['vip']")


# The options without a field of their own (docs/decisions/0107): the name in the store, which ends
# in ``_s`` for seconds, and the check, which gets name and value and returns what is stored.
_RARE_OPTIONS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "soft_timeout": ("soft_timeout_s", _timeout),
}
