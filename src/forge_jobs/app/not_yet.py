"""Names of the interface whose feature is still to come: importable, and clear when used."""

from typing import Any, NoReturn

from forge_jobs.core.errors import NotYet

_LIMITS = "rate limits come with the cluster services"
_CLUSTER = "it comes with the cluster services"
_HANDLERS = "the ready-made handlers come with a later version"

LATER: dict[str, str] = {
    "RateLimiter": _LIMITS,
    "AcquireOutcome": _LIMITS,
    "DEFAULT_RATE_LIMIT_SCOPES": _LIMITS,
    "ensure_default_rate_limits": _LIMITS,
    "NoopEcho": _HANDLERS,
    "NOOP_ECHO_KIND": _HANDLERS,
    "CmdExecHandler": _HANDLERS,
    "CmdExecPayload": _HANDLERS,
    "CMD_EXEC_KIND": _HANDLERS,
    "WorkerPoolHandler": _HANDLERS,
    "WorkerPoolConfig": _HANDLERS,
    "WORKER_POOL_KIND": _HANDLERS,
    "metrics_roll_once": _CLUSTER,
}


class Later:
    """Stands for a class, function or constant that does not exist yet."""

    __slots__ = ("__name__",)

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"<{self.__name__}: not yet>"

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise self._error()

    def __mro_entries__(self, bases: tuple[object, ...]) -> NoReturn:
        raise self._error()

    def __iter__(self) -> NoReturn:
        raise self._error()

    def __getattr__(self, name: str) -> Any:
        # Tools that look around must go on working; only real use is refused.
        if name.startswith("_"):
            raise AttributeError(name)
        raise self._error()

    def _error(self) -> NotYet:
        return NotYet(f"{self.__name__} is not built yet: {LATER[self.__name__]}")
