"""Arguments of Django tasks as payloads, and back.

The payload of a job has its arguments by name, as that of any other task, so that schedules, the
command line and ``per="args.host"`` find them. ``"*"``, which is no name, says how many of them
were positional: Django's results show ``args`` and ``kwargs`` as they were given.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from forge_jobs.core import payload
from forge_jobs.core.errors import BadPayload, PayloadTooLarge

from .django_api import normalize_json

COUNT: Final = "*"
_NOTHING: Final = b"{}"
_Kind = inspect.Parameter


class Arguments:
    """The parameters of one task function."""

    def __init__(self, function: Callable[..., Any], *, takes_context: bool) -> None:
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[1 if takes_context else 0 :]
        self._signature = signature.replace(parameters=parameters)
        self._rest = _only(parameters, _Kind.VAR_POSITIONAL)
        self._extra = _only(parameters, _Kind.VAR_KEYWORD)
        in_order = (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD)
        self._in_order = [item.name for item in parameters if item.kind in in_order]
        self._positional_only = sum(item.kind is _Kind.POSITIONAL_ONLY for item in parameters)
        self.defaults = {
            item.name: item.default for item in parameters if item.default is not _Kind.empty
        }

    def encode(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, limit: int, what: str
    ) -> bytes:
        """The payload of a call. TypeError or ValueError for one that does not fit the function or
        is no JSON, as Django raises them."""
        if not args and not kwargs and not self._in_order:
            return _NOTHING
        # One bind checks names and numbers; defaults stay with the function.
        bound = self._signature.bind(*args, **kwargs).arguments
        values: dict[str, Any] = {
            name: normalize_json(value) for name, value in bound.items() if name != self._extra
        }
        if self._extra is not None:
            values.update(normalize_json(bound.get(self._extra, {})))
        if args:
            values[COUNT] = len(args)
        try:
            return payload.encode(values, limit=limit, what=what)
        except (BadPayload, PayloadTooLarge) as error:
            raise ValueError(str(error)) from error

    def decode(self, data: bytes) -> tuple[list[Any], dict[str, Any]]:
        """``args`` and ``kwargs`` of a payload."""
        values: dict[str, Any] = payload.decode(data)
        count = max(values.pop(COUNT, 0), self._positional_only)
        args: list[Any] = []
        for name in self._in_order[:count]:
            if name not in values:
                break
            args.append(values.pop(name))
        if self._rest is not None and self._rest in values:
            args += values.pop(self._rest)
        return args, values


def _only(parameters: list[inspect.Parameter], kind: Any) -> str | None:
    return next((item.name for item in parameters if item.kind is kind), None)
