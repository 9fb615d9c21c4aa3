"""``WarmChild``: a child process that stays alive between requests and handles one at a time.

A request is one line to the child; the child replies with lines, the last of which is the answer.
The base class of the children of ``cpu=True`` tasks and of pools of programs. The callers decode
the lines, through the functions they pass in.
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
    """The child could not be started, or died before it got the request. The request has had no
    effect and can go to another child."""


class WarmChild:
    """One warm child. ``jobs`` counts its requests; its output goes to ``on_output``.

    ``allows_unsolicited_lines``: lines between requests do not break the protocol.
    """

    allows_unsolicited_lines: ClassVar[bool] = False

    def __init__(self, on_output: OnOutput) -> None:
        self.jobs = 0
        self._on_output = on_output
        self._child: LineChild | None = None
        self._ending = False

    async def start(
        self,
        launch: Launch,
        on_exit: OnExit,
        *,
        is_ready: Callable[[bytes], bool] | None,
        setup_line: bytes | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Start the child, send it ``setup_line`` and wait for its ready line.

        Raises ChildUnavailable if the child does not send it within ``timeout_s``.
        """
        try:
            child = self._child = await launch(self._on_output, on_exit)
        except OSError as error:
            raise ChildUnavailable(
                f"a child process cannot be started: {error.strerror or error}"
            ) from error
        try:
            async with asyncio.timeout(timeout_s):
                if setup_line is not None:
                    await child.send(setup_line)
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
            why = f"it was not ready within {timeout_s:g} s"
        except asyncio.CancelledError:
            await child.terminate_shielded(0)
            raise
        ended = await child.terminate(0)
        status = f": {ended}" if why == "it ended" else ""
        raise ChildUnavailable(f"a child process did not start: {why}{status}")

    @property
    def alive(self) -> bool:
        """Whether the child can take a request."""
        child = self._child
        if child is None or self._ending or child.exit is not None:
            return False
        return child.exists

    @property
    def pid(self) -> int:
        """The child's process id; 0 before it is started."""
        return 0 if self._child is None else self._child.pid

    async def request(self, line: bytes, on_line: Callable[[bytes], T | None]) -> T:
        """Send a request and pass each reply line to ``on_line``, until that returns an answer.

        Raises ChildUnavailable if the child was already dead or had sent an unsolicited line; it is
        killed then, and the request can go to another child. Raises ChildGone if the child exited
        without an answer. Exceptions of ``on_line`` propagate; the child cannot be used after them.
        """
        child = self._child
        assert child is not None
        self.jobs += 1
        if child.has_unread and not self.allows_unsolicited_lines:
            await self.kill()
            raise ChildUnavailable("a child process sent a line without a request")
        try:
            await child.send(line, limit=MAX_LINE_BYTES)
        except ChildGone:
            raise ChildUnavailable(
                f"a child process died while it was idle: {child.exit}"
            ) from None
        replies = 0
        while (reply := await child.receive()) is not None:
            answer = on_line(reply)
            if answer is not None:
                return answer
            replies += 1
            if replies % _LINES_PER_YIELD == 0:
                # ``receive`` does not suspend while lines are buffered.
                await asyncio.sleep(0)  # noqa: TID251  -- yields to other tasks, no time passes
        raise ChildGone(str(await child.wait()))

    def send_nowait(self, line: bytes) -> None:
        """Send a line during a request. A dead child is ignored."""
        if self._child is not None:
            try:
                self._child.send_nowait(line)
            except ChildGone:
                pass

    async def terminate(self, grace_s: float) -> ChildExit | None:
        """End the child during a request: SIGTERM to its group, SIGKILL after ``grace_s``.

        The child takes no more requests. A cancellation meanwhile only ends the grace period.
        """
        self._ending = True
        return None if self._child is None else await self._child.terminate_shielded(grace_s)

    async def shut_down(self) -> None:
        """Close the input of an idle child, and kill it if it does not exit in time."""
        self._ending = True
        if self._child is not None:
            await self._child.shut_down(SHUTDOWN_TIMEOUT_S)

    async def kill(self) -> None:
        """Kill the child at once with all its descendants."""
        await self.terminate(0)
