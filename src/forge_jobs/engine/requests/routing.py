"""Routers: they name the queue of a kind where neither the caller nor a task does."""

from collections.abc import Mapping
from typing import Protocol

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core.names import queue_name


class Router(Protocol):
    """Names the queue of a kind; any object with this method will do.

    >>> class ByTeam:
    ...     def route(self, kind: str) -> str:
    ...         return kind.split(".")[0]
    >>> ByTeam().route("billing.charge")
    'billing'
    """

    def route(self, kind: str) -> str:
        """The queue for jobs of that kind."""
        ...


class DefaultRouter:
    """Routes every kind to one queue.

    >>> DefaultRouter("work").route("send")
    'work'
    """

    def __init__(self, queue: str = DEFAULT_QUEUE) -> None:
        self._queue = queue_name(queue)

    def route(self, kind: str) -> str:
        """The one queue."""
        return self._queue


class KindPrefixRouter:
    """Routes by prefix of the kind: ``KindPrefixRouter({"gh_": "gh"})``.

    The longest matching prefix wins; without a match the job goes to ``default``.

    >>> KindPrefixRouter({"gh_": "gh"}).route("gh_sync")
    'gh'
    """

    def __init__(
        self, prefixes: Mapping[str, str] | None = None, *, default: str = DEFAULT_QUEUE
    ) -> None:
        table = {"gh_": "gh", "slack_": "slack"} if prefixes is None else dict(prefixes)
        self._prefixes = sorted(table.items(), key=lambda item: -len(item[0]))
        for _, queue in self._prefixes:
            queue_name(queue)
        self._default = queue_name(default)

    def route(self, kind: str) -> str:
        """The queue of the longest prefix."""
        for prefix, queue in self._prefixes:
            if kind.startswith(prefix):
                return queue
        return self._default
