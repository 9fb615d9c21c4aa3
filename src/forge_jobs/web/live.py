"""Live pages over server-sent events: one rendering a second at most, shared by all readers.

While the store does not change it is rendered every ten seconds. Nothing is queued for a slow
reader: it gets the newest state next.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from forge_jobs.core.errors import ForgeError
from forge_jobs.kit import redact
from forge_jobs.kit.clock import Clock

Render: TypeAlias = Callable[[], Awaitable[str]]
ReadStamp: TypeAlias = Callable[[], Awaitable[str]]
IsAuthorized: TypeAlias = Callable[[], Awaitable[bool]]

PERIOD_S: Final = 1.0
# Without a change a reader gets a comment, after another check of its authorization.
KEEP_ALIVE_S: Final = 5.0
# A page that is expensive to render is rendered less often; a change must show within two seconds.
_RENDER_COST_FACTOR: Final = 20
_MAX_PERIOD_S: Final = 1.5
# Without writes only ages and the liveness of workers change.
IDLE_PERIOD_S: Final = 10.0
# Views that wake together share one read of the stamp.
_STAMP_TTL_S: Final = 0.2
# Not the version of any view: after an outage event a reader gets the current view.
_NO_VERSION: Final = -1


@dataclass(slots=True)
class _LiveView:
    """One page and its newest event for all its readers. ``version`` rises with every change."""

    render: Render
    version: int = 0
    event: str = ""
    body: str = ""
    subscribers: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def publish(self, event: str, body: str) -> None:
        if (event, body) == (self.event, self.body):
            return
        self.event, self.body = event, body
        self.version += 1
        previous, self.changed = self.changed, asyncio.Event()
        previous.set()


class LiveHub:
    """All live pages of one process. Pages with the same key share one rendering."""

    def __init__(self, clock: Clock, read_stamp: ReadStamp | None = None) -> None:
        """``read_stamp`` returns a text that changes with every write; without it pages are
        rendered every period."""
        self._clock = clock
        self._read_stamp = read_stamp
        self._last_stamp: tuple[float, str] | None = None
        self._views: dict[str, _LiveView] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def stream(
        self, key: str, render: Render, is_authorized: IsAuthorized | None = None
    ) -> AsyncIterator[str]:
        """Server-sent events of one page until the reader disconnects or ``is_authorized`` returns
        False. It is called before every event. While it raises, the reader gets one ``trouble``
        event and nothing else."""
        view = self._subscribe(key, render)
        sent_version = 0
        try:
            yield "retry: 2000\n\n"
            while True:
                has_change = sent_version != view.version > 0 or await _wait_for_change(
                    view.changed
                )
                try:
                    login_ended = is_authorized is not None and not await is_authorized()
                except ForgeError as error:
                    # the authorization cannot be checked: send the error, but no content
                    if sent_version != _NO_VERSION:
                        yield _format_event("trouble", redact.prose(str(error)))
                        sent_version = _NO_VERSION
                    else:
                        yield _ALIVE
                    await self._clock.sleep(PERIOD_S)
                    continue
                if login_ended:
                    yield _format_event("over", "login")
                    return
                if has_change:
                    sent_version = view.version
                    yield _format_event(view.event, view.body)
                else:
                    # an event, not a comment: the page notices when it stays away
                    yield _ALIVE
        finally:
            self._unsubscribe(key, view)

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return sum(view.subscribers for view in self._views.values())

    def _subscribe(self, key: str, render: Render) -> _LiveView:
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = _LiveView(render)
            self._tasks[key] = asyncio.create_task(self._render_loop(view), name=f"live {key}")
        view.subscribers += 1
        return view

    def _unsubscribe(self, key: str, view: _LiveView) -> None:
        view.subscribers -= 1
        if view.subscribers == 0:
            self._views.pop(key, None)
            task = self._tasks.pop(key, None)
            if task is not None:
                task.cancel()

    async def _render_loop(self, view: _LiveView) -> None:
        rendered: tuple[float, str] | None = None
        while True:
            started = self._clock.mono()
            try:
                # read before rendering: a write during it is noticed next time
                stamp = await self._current_stamp()
                unchanged = rendered is not None and rendered[1] == stamp != ""
                if not unchanged or rendered is None or started - rendered[0] >= IDLE_PERIOD_S:
                    view.publish("view", await view.render())
                    rendered = (started, stamp)
            except ForgeError as error:
                rendered = None
                view.publish("trouble", redact.prose(str(error)))
            render_s = self._clock.mono() - started
            await self._clock.sleep(
                max(PERIOD_S, min(render_s * _RENDER_COST_FACTOR, _MAX_PERIOD_S))
            )

    async def _current_stamp(self) -> str:
        """The current stamp; empty without ``read_stamp``."""
        if self._read_stamp is None:
            return ""
        if self._last_stamp is None or self._clock.mono() - self._last_stamp[0] > _STAMP_TTL_S:
            at = self._clock.mono()
            self._last_stamp = (at, await self._read_stamp())
        return self._last_stamp[1]


async def _wait_for_change(changed: asyncio.Event) -> bool:
    """Whether the view changes before a keep-alive is due."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_S):
            await changed.wait()
    except TimeoutError:
        return False
    return True


def _format_event(name: str, body: str) -> str:
    lines = "".join(f"data: {line}\n" for line in body.replace("\r", "").split("\n"))
    return f"event: {name}\n{lines}\n"


_ALIVE: Final = _format_event("alive", "1")
