"""Raises exceptions as a signal handler would, at every point of a call where one can run.

CPython runs handlers on the main thread where a Python function begins (RESUME), after a call and
where a loop starts over (JUMP_BACKWARD), and nowhere else; not when a Python function returns to
the Python code that called it. ``raised_at`` raises at the n-th such point of the library, and of
those parts of the standard library that it waits with, by tracing instructions; so each can be
tried, one after the other. Raising elsewhere would test points that do not exist, such as the one
between entering a ``with`` block and its body.
"""

import dis
import itertools
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

_PARTS = ("/forge_jobs/", "/contextlib.py", "/threading.py", "/concurrent/futures/", "/asyncio/")
_PATIENCE_S = 20.0
_NEVER = 10**9
_CALLS = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})
_STARTS = frozenset({"RESUME", "JUMP_BACKWARD"})


class Interrupt(BaseException):
    """What a signal handler raises in these tests."""


class Late(TimeoutError):
    """The same as a soft time limit: an ordinary exception, even an OSError."""


class _Points:
    """Where handlers can run, by code object: at the beginning of these instructions, and before
    those that follow a call.

    A handler that runs after a call raises at the call. The instruction after it is used instead,
    only if the same handlers guard both; else this point is left out.
    """

    def __init__(self) -> None:
        self._known: dict[CodeType, tuple[frozenset[int], frozenset[int]]] = {}

    def of(self, code: CodeType) -> tuple[frozenset[int], frozenset[int]]:
        known = self._known.get(code)
        if known is None:
            known = self._known[code] = _points(code)
        return known


def _points(code: CodeType) -> tuple[frozenset[int], frozenset[int]]:
    instructions = list(dis.get_instructions(code))
    guarded = _guards(code)
    starts = frozenset(this.offset for this in instructions if this.opname in _STARTS)
    follows = frozenset(
        following.offset
        for this, following in itertools.pairwise(instructions)
        if this.opname in _CALLS and guarded(this.offset) == guarded(following.offset)
    )
    return starts, follows


def _guards(code: CodeType) -> Callable[[int], object]:
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]

    def guard(offset: int) -> object:
        return [entry.target for entry in entries if entry.start <= offset < entry.end]

    return guard


_POINTS = _Points()


class Tracing:
    """Counts the points of a call and raises at one of them; ``raised``: whether it did."""

    def __init__(self, point: int, error: type[BaseException]) -> None:
        self._left = point
        self.counted = 0
        self._returning: FrameType | None = None
        self._error = error
        self.raised = False
        self.where = ""
        # Kept, as a prompt or a notebook does: whatever its frames hold stays alive.
        self.caught: BaseException | None = None

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        frame.f_trace_lines = False
        if not any(part in frame.f_code.co_filename for part in _PARTS) or self._is_swallowed(
            frame
        ):
            return self._return
        # From 3.13 on instructions are traced only if the frame has its function by then.
        frame.f_trace = self._step
        frame.f_trace_opcodes = True
        return self._step

    def _is_swallowed(self, frame: FrameType) -> bool:
        """asyncio ignores every OSError while it wakes a loop of another thread."""
        return frame.f_code.co_name == "_write_to_self" and issubclass(self._error, OSError)

    def _return(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "return" and frame.f_code.co_name != "__init__":
            # Its caller continues without a check; a class is called through C, and has one.
            self._returning = frame.f_back
        return self._return

    def _step(self, frame: FrameType, event: str, arg: object) -> Any:
        if event != "opcode" or self.raised:
            self._return(frame, event, arg)
            return self._step
        returning, self._returning = self._returning is frame, None
        starts, follows = _POINTS.of(frame.f_code)
        if frame.f_lasti in starts or (frame.f_lasti in follows and not returning):
            self.counted += 1
            self._left -= 1
            if self._left < 0:
                self.raised = True
                self.where = f"{frame.f_code.co_qualname} line {frame.f_lineno}"
                sys.settrace(None)
                raise_it(self._error)
        return self._step


def raise_it(error: type[BaseException]) -> None:
    raise error


def raised_at(
    point: int, call: Callable[[], object], error: type[BaseException] = Interrupt
) -> Tracing:
    """Run ``call`` and raise ``error`` at its n-th point."""
    tracing = Tracing(point, error)
    before = sys.gettrace()
    sys.settrace(tracing)
    try:
        call()
    except error as caught:
        tracing.caught = caught
    finally:
        sys.settrace(before)
        release_logging()
    return tracing


def sweep(
    call: Callable[[], object],
    check: Callable[[Tracing], None],
    *,
    error: type[BaseException] = Interrupt,
    max_points: int = 150,
) -> int:
    """Interrupt ``call`` at each of its points, or at ``max_points`` of them evenly spread unless
    TEST_SWEEP_ALL is set; ``check`` runs after each. Returns their number."""
    tracing = raised_at(_NEVER, call, error)
    step = 1 if "TEST_SWEEP_ALL" in os.environ else max(1, tracing.counted // max_points)
    for count in itertools.count():
        tracing = raised_at(count * step, call, error)
        if not tracing.raised:
            return count
        with not_stuck(tracing.where):
            check(tracing)
    raise AssertionError


@contextmanager
def not_stuck(where: str) -> Iterator[None]:
    """Fail instead of waiting for ever."""

    def notify(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"a call never came back after an interrupt in {where}")

    before = signal.signal(signal.SIGALRM, notify)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def release_logging() -> None:
    """An exception that a signal handler raises inside ``logging``, or in its hook after a fork,
    leaves the lock of that module taken by this thread: others that log would wait for ever."""
    lock: Any = logging._lock  # type: ignore[attr-defined]
    while lock._is_owned():
        lock.release()


@contextmanager
def alarm(error: type[BaseException]) -> Iterator[Callable[[float], None]]:
    """Real signals: the function that is given has SIGALRM raise ``error`` in so many seconds."""

    def notify(number: int, frame: FrameType | None) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, notify)
    try:
        yield lambda delay_s: signal.setitimer(signal.ITIMER_REAL, delay_s) and None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        release_logging()
