"""Names of the interface whose feature is still to come: importable, and clear when used."""

from typing import Any, NoReturn

from forge_jobs.core.errors import NotYet

_CLUSTER = "it comes with the cluster services"

LATER: dict[str, str] = {
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
