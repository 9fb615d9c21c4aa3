"""Reference of the public names: signatures, fields and docstrings."""

import enum
import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

import forge_jobs
from forge_jobs.core.errors import ForgeError

from .markdown import block, code, docstring, document, first_paragraph, table
from .signatures import fields, signatures


def _all_of(module: str) -> str:
    """The public names of a module, as ``_PAGES`` has them."""
    return " ".join(f"{module}:{name}" for name in import_module(module).__all__)


# What the pages show: file, title, introduction and names. A name of forge_jobs is written bare,
# another one with its module. tests/docs/test_reference.py checks that none is left out.
_PAGES: Final = (
    (
        "python.md",
        "Python: tasks, jobs, handlers",
        "The names of `forge_jobs` that applications use. Errors are in [errors](errors.md), the "
        "names below `Forge` in [lower-level](lower-level.md). Examples run as tests; in them "
        "`forge` is `Forge(\"memory://\")` and `send` a task of it.",
        "Forge forge_jobs.app.decorator:TaskDecorator forge_jobs.client.options:TaskOptions "
        "forge_jobs.app.cron:CronOptions Task AsyncTask DefTask "
        "forge_jobs.client.options:JobOptions "
        "forge_jobs.client.task:TaskWith Job JobStatus forge_jobs.app.jobs:Jobs "
        "forge_jobs.app.jobs:JobConditions BulkResult StoredStep JobRecord "
        "forge_jobs.app.schedules:Schedules CronSpec Context JobCtx ReceivedEvent SentEvent Retry "
        "JobOutcome Done Failed Dead Throttled Snooze DeadJob RateLimit RateLimiter AcquireOutcome "
        "forge_jobs.app.worker:WorkerKeywords EngineSettings JobLogFilter",
    ),
    (
        "lower-level.md",
        "Python: the lower level",
        "The names of `forge_jobs` below `Forge`: a runtime made of a store, handlers and a "
        "router, ready-made handlers, periodic work as functions, and what tests replace.",
        "open_storage QueueRuntime QueueHandle HandlerRegistry JobHandler Router DefaultRouter "
        "KindPrefixRouter EnqueueRequest EnqueueOutcome FinalizeOutcome NewJob QueueChange "
        "NoopEcho CmdExecHandler CmdExecPayload WorkerPoolHandler WorkerPoolConfig CMD_EXEC_KIND "
        "NOOP_ECHO_KIND WORKER_POOL_KIND ensure_schedules ensure_default_rate_limits "
        "DEFAULT_RATE_LIMIT_SCOPES reap_stale_jobs cleanup_once CleanupReport cron_tick_once "
        "CronTickReport metrics_roll_once RollReport rebalance_once prometheus_text "
        "verify_webhook "
        "queues_from_env worker_prefix_from_env worker_version_from_env worker_id_from_env "
        "DEFAULT_QUEUE_WORKERS DEFAULT_SHUTDOWN_TIMEOUT Clock SYSTEM_CLOCK Entropy SYSTEM_ENTROPY "
        "SECRET_ENTROPY",
    ),
    (
        "testing.md",
        "Python: forge_jobs.testing",
        "For your own tests.",
        _all_of("forge_jobs.testing"),
    ),
    (
        "pull.md",
        "Python: the pull queue",
        "`forge_jobs.pull`, for scripts that fetch their jobs themselves; `JobQueue` is in "
        "`forge_jobs` too.",
        _all_of("forge_jobs.pull"),
    ),
    (
        "mounting.md",
        "Python: Mission Control and spans",
        "`forge_jobs.web` needs the extra `[web]`, `forge_jobs.otel` the extra `[otel]`.",
        _all_of("forge_jobs.web") + " forge_jobs.otel:instrument",
    ),
    (
        "frameworks.md",
        "Python: web frameworks",
        "`forge_jobs.integrations`. `lifespan` is the same in `.starlette` and `.fastapi`; how it "
        "fits together: [frameworks](../frameworks.md).",
        "forge_jobs.integrations.lifespan:lifespan forge_jobs.integrations.starlette:get_forge "
        "forge_jobs.integrations.fastapi:inject forge_jobs.integrations.fastapi:overrides_of "
        "forge_jobs.integrations.litestar:ForgePlugin forge_jobs.integrations.flask:FlaskForge",
    ),
)  # fmt: skip
# Where a name is used under another one.
_SHOWN: Final = {"TaskDecorator": "forge.task", "TaskWith": "task.using"}
_DESCRIBED: Final = frozenset(
    path.rpartition(":")[2] for *_, names in _PAGES for path in names.split()
)


def pages() -> dict[str, str]:
    """The pages by file name."""
    return {
        file: document(f"# {title}", intro, *map(_entry, names.split()))
        for file, title, intro, names in _PAGES
    }


def listed() -> set[str]:
    """The names of ``forge_jobs`` that the pages show; errors have their own page."""
    return {name for *_, names in _PAGES for name in names.split() if ":" not in name}


def described() -> list[str]:
    """What the pages show, as they name it: ``Forge``, ``forge_jobs.pull:Job``."""
    return [name for *_, names in _PAGES for name in names.split()]


def _entry(path: str) -> str:
    module, _, name = path.rpartition(":")
    value = getattr(import_module(module) if module else forge_jobs, name)
    shown = _SHOWN.get(name, name)
    if inspect.isclass(value):
        if value.__name__ != name:
            return document(f"## {shown}", f"Another name of `{value.__name__}`.")
        return _class(value, shown)
    if inspect.isfunction(value):
        text = block("\n".join(signatures(value, name, method=False)))
        return document(f"## {shown}", text, docstring(value.__doc__))
    text = f"{name} = {value!r}" if isinstance(value, str | int | float | dict) else None
    described = "" if text else first_paragraph(type(value).__doc__)
    return document(f"## {shown}", block(text) if text else described)


def _class(cls: type, shown: str) -> str:
    parts = [f"## {shown}", docstring(cls.__doc__)]
    if issubclass(cls, ForgeError):
        parts.append("See [errors](errors.md).")
        return document(*parts)
    if issubclass(cls, enum.Enum):
        parts.append(table(("member", "value"), ((code(one.name), code(one.value)) for one in cls)))
    own = vars(cls).get("__init__")
    if inspect.isfunction(own) and not hasattr(cls, "__struct_fields__"):
        source = inspect.getsourcefile(own)
        if source and "forge_jobs" in source and "Protocol" not in str(cls.__mro__[1:2]):
            parts.append(block("\n".join(_without_def(own, cls.__name__))))
    rows = [(code(name), code(kind), code(value)) for name, kind, value in fields(cls)]
    if rows and any(value for *_, value in rows):
        parts.append(table(("field", "type", "default"), rows))
    elif rows:
        parts.append(table(("field", "type"), [row[:2] for row in rows]))
    inherited = [base.__name__ for base in cls.__mro__[1:] if base.__name__ in _DESCRIBED]
    if inherited:
        parts.append(f"It has the members of `{inherited[0]}` too.")
    for name, member in _members(cls):
        parts.append(_member(shown, name, member))
    return document(*parts)


def _without_def(function: Any, name: str) -> list[str]:
    made = signatures(function, name, method=True)
    return [one.removeprefix("def ").removesuffix(" -> None") for one in made]


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties, also those of base classes that have no entry."""
    seen: set[str] = set()
    described = [base for base in cls.__mro__[1:] if base.__name__ in _DESCRIBED]
    for base in cls.__mro__:
        is_shown_there = any(issubclass(one, base) for one in described)
        if is_shown_there or not base.__module__.startswith("forge_jobs"):
            continue
        for name, member in vars(base).items():
            is_shown = name == "__call__" or not name.startswith("_")
            wanted = inspect.isfunction(member) or isinstance(
                member, property | classmethod | staticmethod
            )
            if is_shown and wanted and name not in seen:
                seen.add(name)
                yield name, member


def _member(shown: str, name: str, member: Any) -> str:
    if isinstance(member, property):
        assert member.fget is not None
        [text] = signatures(member.fget, name, method=True)
        result = text.partition(" -> ")[2]
        return document(
            f"### {shown}.{name}", block(f"{name}: {result}"), docstring(member.__doc__)
        )
    function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
    heading = f"### {shown}.{name}" if name != "__call__" else f"### {shown}(…)"
    made = signatures(function, name, method=not isinstance(member, staticmethod))
    if name == "__call__":
        last = shown.rpartition(".")[2]
        made = [one.replace("def __call__", f"def {last}", 1) for one in made]
    if shown == "forge.task":
        # Its eleven overloads type the decorated function; what a reader needs is the docstring.
        made = ["@forge.task", "@forge.task(*, **options: Unpack[TaskOptions])"]
        return document(heading, block("\n".join(made)), "The options are those of `TaskOptions`.")
    return document(heading, block("\n".join(made)), docstring(function.__doc__))
