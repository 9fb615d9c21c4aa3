"""Live pages: each page that somebody looks at is rendered at most once a second for all of them,
and hardly ever while nothing is written.

A reader that is slow sees the newest state next, never a backlog: nothing is queued for it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from forge_jobs.core.errors import ForgeError
from forge_jobs.kit import redact
from forge_jobs.kit.clock import Clock

Render: TypeAlias = Callable[[], Awaitable[str]]
Stamp: TypeAlias = Callable[[], Awaitable[str]]
Still: TypeAlias = Callable[[], Awaitable[bool]]

PERIOD_S: Final = 1.0
# A reader that has nothing to read hears of it, and is asked again who they are.
KEEP_ALIVE_S: Final = 5.0
# A page that is dear to make is made less often, but a change has to show within two seconds.
_SHARE: Final = 20
_LONGEST_S: Final = 1.5
# While nothing is written only time passes: what is old becomes older, and workers may fall silent.
QUIET_S: Final = 10.0
# Views that wake together share one look at the stamp.
_SAME_S: Final = 0.2
# The number of no view: a reader who was told of an outage gets the present view after it.
_UNKNOWN: Final = -1


@dataclass(slots=True)
class _View:
    """One page as all its readers see it. ``number`` rises with every change."""

    render: Render
    number: int = 0
    event: str = ""
    body: str = ""
    readers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, event: str, body: str) -> None:
        if (event, body) == (self.event, self.body):
            return
        self.event, self.body = event, body
        self.number += 1
        before, self.changed = self.changed, asyncio.Event()
        before.set()


class Hub:
    """All live pages of one process."""

    def __init__(self, clock: Clock, stamp: Stamp | None = None) -> None:
        """``stamp`` tells whether anything was written; without it pages are always rendered."""
        self._clock = clock
        self._stamp = stamp
        self._stamped: tuple[float, str] | None = None
        self._views: dict[str, _View] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def stream(
        self, key: str, render: Render, still: Still | None = None
    ) -> AsyncIterator[str]:
        """Server-sent events of one page, from now until the reader leaves, or until ``still``
        says no: nothing is sent without asking it. While it cannot say, an outage is told and
        nothing else."""
        view = self._join(key, render)
        seen = 0
        try:
            yield "retry: 2000\n\n"
            while True:
                news = seen != view.number > 0 or await _in_time(view.changed)
                try:
                    over = still is not None and not await still()
                except ForgeError as error:
                    # nobody can tell who this is: they hear of that, and of nothing else
                    if seen != _UNKNOWN:
                        yield _event("trouble", redact.prose(str(error)))
                        seen = _UNKNOWN
                    await self._clock.sleep(PERIOD_S)
                    continue
                if over:
                    yield _event("over", "login")
                    return
                if news:
                    seen = view.number
                    yield _event(view.event, view.body)
                else:
                    yield ": still here\n\n"
        finally:
            self._leave(key, view)

    @property
    def streams(self) -> int:
        """How many readers there are."""
        return sum(view.readers for view in self._views.values())

    def _join(self, key: str, render: Render) -> _View:
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = _View(render)
            self._tasks[key] = asyncio.create_task(self._keep(view), name=f"live {key}")
        view.readers += 1
        return view

    def _leave(self, key: str, view: _View) -> None:
        view.readers -= 1
        if view.readers == 0:
            self._views.pop(key, None)
            task = self._tasks.pop(key, None)
            if task is not None:
                task.cancel()

    async def _keep(self, view: _View) -> None:
        rendered: tuple[float, str] | None = None
        while True:
            begun = self._clock.mono()
            try:
                # before it is rendered: what is written meanwhile is seen next time
                stamp = await self._present()
                quiet = rendered is not None and rendered[1] == stamp != ""
                if not quiet or rendered is None or begun - rendered[0] >= QUIET_S:
                    view.show("view", await view.render())
                    rendered = (begun, stamp)
            except ForgeError as error:
                rendered = None
                view.show("trouble", redact.prose(str(error)))
            took = self._clock.mono() - begun
            await self._clock.sleep(max(PERIOD_S, min(took * _SHARE, _LONGEST_S)))

    async def _present(self) -> str:
        """The stamp of now; empty when nobody can tell."""
        if self._stamp is None:
            return ""
        if self._stamped is None or self._clock.mono() - self._stamped[0] > _SAME_S:
            at = self._clock.mono()
            self._stamped = (at, await self._stamp())
        return self._stamped[1]


async def _in_time(changed: asyncio.Event) -> bool:
    """Whether there is news before the reader has to be told that there is none."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_S):
            await changed.wait()
    except TimeoutError:
        return False
    return True


def _event(name: str, body: str) -> str:
    lines = "".join(f"data: {line}\n" for line in body.replace("\r", "").split("\n"))
    return f"event: {name}\n{lines}\n"
