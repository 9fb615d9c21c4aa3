"""A warm child with room for one request at a time: a line there, lines back, one of them the last.

Shared by everything that keeps children warm: ``cpu=True`` tasks and pools of programs. What the
lines mean is theirs to say, by the functions they hand in.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final, TypeVar

from .line_child import LineChild, OnExit, OnOutput
from .parent_link import MAX_LINE_BYTES, BadLine
from .process import ChildExit, ChildGone

T = TypeVar("T")
Launch = Callable[[OnOutput, OnExit], Awaitable[LineChild]]

SHUTDOWN_TIMEOUT_S: Final = 2.0
_LINES_PER_YIELD: Final = 64


class ChildUnavailable(Exception):
    """The child did not come up, or was gone before it had the request: nobody's request is to
    blame."""


class WarmChild:
    """A child that was started, listens, and has taken ``jobs`` requests. Whatever it prints goes
    to ``on_output``. ``allows_unsolicited_lines``: what it says between requests is no fault."""

    allows_unsolicited_lines: ClassVar[bool] = False

    def __init__(self, on_output: OnOutput) -> None:
        self.jobs = 0
        self._on_output = on_output
        self._child: LineChild | None = None
        self._doomed = False

    async def start(
        self,
        launch: Launch,
        on_exit: OnExit,
        *,
        is_ready: Callable[[bytes], bool] | None,
        greeting: bytes | None = None,
        within_s: float | None = None,
    ) -> None:
        """Start the child and wait until it says that it listens. NotUp when it does not."""
        try:
            child = self._child = await launch(self._on_output, on_exit)
        except OSError as error:
            raise ChildUnavailable(
                f"a child process cannot be started: {error.strerror or error}"
            ) from error
        try:
            async with asyncio.timeout(within_s):
                if greeting is not None:
                    await child.send(greeting)
                if is_ready is None:
                    return
                first = await child.receive()
                why = "its first line was something else" if first else "it ended"
                if first is not None and is_ready(first):
                    return
        except ChildGone:
            why = "it ended"
        except BadLine as error:
            why = str(error)
        except TimeoutError:
            why = f"it was not ready within {within_s:g} s"
        except asyncio.CancelledError:
            await child.terminate_shielded(0)
            raise
        ended = await child.terminate(0)
        told = f": {ended}" if why == "it ended" else ""
        raise ChildUnavailable(f"a child process did not come up: {why}{told}")

    @property
    def alive(self) -> bool:
        """Whether the child can take a request."""
        child = self._child
        if child is None or self._doomed or child.exit is not None:
            return False
        return child.exists

    @property
    def pid(self) -> int:
        """The child's process id, 0 before it has one."""
        return 0 if self._child is None else self._child.pid

    async def request(self, line: bytes, on_line: Callable[[bytes], T | None]) -> T:
        """Send the request and pass the lines that follow to ``hear``, until it has an answer.

        NotUp when the child was already gone, or had spoken without being asked: it is killed, and
        the request can go elsewhere. ChildGone when it ended without an answer. Whatever ``hear``
        raises is passed on; the child is of no use after that.
        """
        child = self._child
        assert child is not None
        self.jobs += 1
        if child.has_unread and not self.allows_unsolicited_lines:
            await self.kill()
            raise ChildUnavailable("a child process spoke without being asked")
        try:
            await child.send(line, limit=MAX_LINE_BYTES)
        except ChildGone:
            raise ChildUnavailable(
                f"a child process died while it was idle: {child.exit}"
            ) from None
        heard = 0
        while (reply := await child.receive()) is not None:
            answer = on_line(reply)
            if answer is not None:
                return answer
            heard += 1
            if heard % _LINES_PER_YIELD == 0:
                # Lines that are there already do not let anybody else run.
                await asyncio.sleep(0)  # noqa: TID251  -- yields to other tasks, no time passes
        raise ChildGone(str(await child.wait()))

    def send_nowait(self, line: bytes) -> None:
        """A word in between. Nobody needs to be there to hear it."""
        if self._child is not None:
            try:
                self._child.send_nowait(line)
            except ChildGone:
                pass

    async def terminate(self, grace_s: float) -> ChildExit | None:
        """End the child in the middle of a request: TERM to its group, KILL after the grace. No
        other request from here on; a cancellation meanwhile only shortens the grace."""
        self._doomed = True
        return None if self._child is None else await self._child.terminate_shielded(grace_s)

    async def shut_down(self) -> None:
        """Let an idle child end by itself; insist if it does not."""
        self._doomed = True
        if self._child is not None:
            await self._child.shut_down(SHUTDOWN_TIMEOUT_S)

    async def kill(self) -> None:
        """End the child at once with everything it started."""
        await self.terminate(0)
