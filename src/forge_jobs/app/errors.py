"""``forge.errors(...)``: the groups of failures with the same cause, from Python code."""

from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import timedelta
from typing import Any, TypedDict

from forge_jobs.client.job_client import JobClient
from forge_jobs.client.options import check_names
from forge_jobs.client.task import Task
from forge_jobs.core.error_groups import GroupState
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Duration, seconds
from forge_jobs.core.selection import Cursor
from forge_jobs.ops.error_groups import (
    DEFAULT_SPAN_S,
    ErrorGroupActions,
    ErrorGroupsPage,
    ErrorGroupView,
    check_span,
    error_groups,
)
from forge_jobs.store.store import Store

_ACTOR = "application"
_WHERE = "forge.errors(...)"


class ErrorConditions(TypedDict, total=False):
    """What ``forge.errors`` selects by; all given conditions must hold.

    ``since``: seen within that span back from now, at most 14 days; the default is one day.
    ``state``: ``open``, ``resolved`` or ``returned``, or several of them.

    >>> [group.title for group in forge.errors(since="1h", state="open")]
    []
    """

    since: Duration
    kind: "str | Task[..., Any]"
    queue: str
    state: str | GroupState | Iterable[str | GroupState]


class Errors:
    """The error groups that match, the newest failure first; made by ``forge.errors(...)``.

    Nothing is read before it is iterated. ``async for`` works as well.
    """

    def __init__(self, client: JobClient, conditions: ErrorConditions) -> None:
        check_names(conditions, tuple(ErrorConditions.__annotations__), where=_WHERE)
        since = conditions.get("since", timedelta(seconds=DEFAULT_SPAN_S))
        self._client = client
        self._span_s = seconds(since, field=f"{_WHERE}: since")
        check_span(self._span_s)
        kind = conditions.get("kind")
        self._kind = kind.kind if isinstance(kind, Task) else kind
        self._queue = conditions.get("queue")
        self._states = _states(conditions.get("state", ()))

    def __iter__(self) -> Iterator[ErrorGroupView]:
        after: Cursor | None = None
        while True:
            page = self._client.access.run(lambda store, after=after: self._read(store, after))
            yield from page.groups
            after = page.next
            if after is None:
                return

    async def __aiter__(self) -> AsyncIterator[ErrorGroupView]:
        store = await self._client.access.aready()
        after: Cursor | None = None
        while True:
            page = await self._read(store, after)
            for group in page.groups:
                yield group
            after = page.next
            if after is None:
                return

    def resolve(self) -> int:
        """Mark all of them as resolved; how many. The audit names the actor "application"."""
        return self._client.access.run(self._resolve)

    async def aresolve(self) -> int:
        """``resolve`` for coroutines."""
        return await self._resolve(await self._client.access.aready())

    async def _resolve(self, store: Store) -> int:
        actions = ErrorGroupActions(store, actor=_ACTOR)
        ids = [group.id async for group in self]
        for group_id in ids:
            await actions.resolve(group_id)
        return len(ids)

    async def _read(self, store: Store, after: Cursor | None) -> ErrorGroupsPage:
        return await error_groups(
            store,
            span_s=self._span_s,
            kind=self._kind,
            queue=self._queue,
            states=self._states,
            after=after,
        )


def _states(given: str | GroupState | Iterable[str | GroupState]) -> tuple[GroupState, ...]:
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        if name not in tuple(GroupState):
            raise BadOption(f"{_WHERE}: state={name!r}: use {', '.join(GroupState)}")
    return tuple(GroupState(name) for name in names)
