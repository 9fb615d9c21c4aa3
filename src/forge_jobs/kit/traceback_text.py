"""The traceback of an exception as bounded text, made where something failed and stored with it.

It has the layout of the interpreter's own tracebacks: frames with their source lines, chained
causes, members of exception groups, notes. It never holds the value of a variable, and secrets in
messages and source lines are redacted. The outermost frames, those of this package that called the
handler, are left out: the first frame is the user's. So are those between a handler and the
function of one of its steps.
"""

import asyncio
import linecache
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from types import CodeType, TracebackType
from typing import Any, Final, NamedTuple, cast

from . import redact

MAX_BYTES: Final = 16_384
_MAX_FRAMES: Final = 40
_MAX_LINKS: Final = 8
_MAX_MEMBERS: Final = 8
_MAX_DEPTH: Final = 4
_MAX_NOTES: Final = 16
_MAX_CODE_CHARS: Final = 200
_MAX_MESSAGE_CHARS: Final = 4_096
_READ_CHARS: Final = 4 * _MAX_MESSAGE_CHARS

_CAUSE: Final = "The above exception was the direct cause of the following exception:"
_CONTEXT: Final = "During handling of the above exception, another exception occurred:"

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# What calls handlers. The other rooms hold handlers of their own (``handlers``, the demo).
_CALLERS: Final = tuple(
    os.path.join(_PACKAGE, room) + os.sep
    for room in (
        "app",
        "backends",
        "client",
        "core",
        "django",
        "engine",
        "kit",
        "pull",
        "store",
        "testing",
    )
)
_STEPS: Final = (
    os.path.join(_PACKAGE, "engine", "steps") + os.sep,
    os.path.join(_PACKAGE, "kit", "call_threads.py"),
)
_EVENT_LOOP: Final = os.path.dirname(os.path.abspath(asyncio.__file__)) + os.sep
# A message must not move the cursor of the terminal that shows it.
_CONTROLS: Final = {
    code: None if code == 0 else f"\\x{code:02x}"
    for code in (*range(32), *range(127, 160))
    if chr(code) not in "\n\t"
}
_LITERAL: Final = re.compile(
    r"""(?P<head>["']?(?P<name>[\w\-]+)(?P<close>["']?\]?)\s*[:=]\s*)?"""
    r"""(?:[a-zA-Z]{0,2}(?P<quote>["'])(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)|(?<==)\s*\d+)"""
)


# By code object and instruction. The code object is kept with its lines, so that its id stays its.
_LINES: Final[dict[tuple[int, int], tuple[CodeType, tuple[str, ...]]]] = {}
_MAX_LINES_KEPT: Final = 1_024


class _Frame(NamedTuple):
    code: CodeType
    last_instruction: int
    line: int
    module: dict[str, Any]


def traceback_text(error: BaseException) -> str | None:
    """The traceback of an exception, at most 16 KiB with both ends kept; None if no frame is left.

    Never raises, whatever the exception does in its own methods.
    """
    try:
        writer = _TracebackWriter()
        lines = writer.chain(error, 0)
        return bounded("\n".join(lines)) if writer.has_frames else None
    except Exception:
        return None


def output_text(text: str) -> str | None:
    """The last output of a program, for a failure that has no exception: at most 16 KiB, redacted.
    None if it printed nothing."""
    return bounded(redact.prose(text[-MAX_BYTES:])).strip("\n") or None


def bounded(text: str) -> str:
    """Text that every store takes, at most 16 KiB: whole lines of both ends are kept."""
    data = text.translate(_CONTROLS).encode("utf-8", "replace")
    if len(data) <= MAX_BYTES:
        return data.decode()
    room = (MAX_BYTES - 80) // 2
    head, tail = data[:room], data[-room:]
    # Whole lines, unless one line fills the room.
    head = head[: head.rfind(b"\n") + 1] or head
    tail = tail[tail.find(b"\n") + 1 :] or tail
    left_out = len(data) - len(head) - len(tail)
    start, end = head.decode("utf-8", "ignore").rstrip("\n"), tail.decode("utf-8", "ignore")
    return f"{start}\n… {left_out:,} bytes left out …\n{end}"


class _TracebackWriter:
    """Writes one exception with its causes and members. ``has_frames``: a frame was written."""

    def __init__(self) -> None:
        self.has_frames = False
        self._seen: set[int] = set()

    def chain(self, error: BaseException, depth: int) -> list[str]:
        links: list[tuple[BaseException, str]] = []
        link, joint = error, ""
        while id(link) not in self._seen and len(links) < _MAX_LINKS:
            self._seen.add(id(link))
            links.append((link, joint))
            cause, context = link.__cause__, link.__context__
            if cause is not None:
                link, joint = cause, _CAUSE
            elif context is not None and not link.__suppress_context__:
                link, joint = context, _CONTEXT
        lines: list[str] = []
        for link, joint in reversed(links):
            lines += self._one(link, depth)
            if joint:
                # The text stands between the cause and what it led to.
                lines += ["", joint, ""]
        return _joined(links, lines)

    def _one(self, error: BaseException, depth: int) -> list[str]:
        frames = _frames(error.__traceback__)
        lines: list[str] = []
        if frames:
            self.has_frames = True
            lines.append("Traceback (most recent call last):")
            lines += self._frame_lines(frames)
        lines += _description(error)
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            lines += self._members(group.exceptions, depth + 1)
        return lines

    def _members(self, members: Sequence[BaseException], depth: int) -> Iterator[str]:
        if depth > _MAX_DEPTH:
            yield f"  … {len(members)} inner exceptions left out …"
            return
        for number, member in enumerate(members[:_MAX_MEMBERS], 1):
            yield f"  +---------------- {number} of {len(members)} ----------------"
            for line in self.chain(member, depth):
                yield f"  | {line}"
        if len(members) > _MAX_MEMBERS:
            yield f"  … {len(members) - _MAX_MEMBERS} more exceptions left out …"
        yield "  +---------------------------------------"

    def _frame_lines(self, frames: Sequence[_Frame]) -> Iterator[str]:
        half = _MAX_FRAMES // 2
        for number, frame in enumerate(frames):
            left_out = len(frames) - _MAX_FRAMES
            if left_out > 0 and half <= number < len(frames) - half:
                if number == half:
                    yield f"  … {left_out} frames left out …"
                continue
            yield from _lines_of(frame)


def _lines_of(frame: _Frame) -> tuple[str, ...]:
    """The lines of a frame. Kept, because the same job tends to fail at the same place: a traceback
    of six frames costs 15 µs instead of 70."""
    key = (id(frame.code), frame.last_instruction)
    known = _LINES.get(key)
    if known is not None:
        return known[1]
    name = frame.code.co_filename
    lines = [f'  File "{name}", line {frame.line}, in {frame.code.co_name}']
    linecache.checkcache(name)
    source = linecache.getline(name, frame.line, frame.module).rstrip()
    code = source.strip()
    if code:
        shown = redacted_code(code)[:_MAX_CODE_CHARS]
        lines.append(f"    {shown}")
        if shown == code and (marks := _marks(frame, source)):
            lines.append(f"    {marks}")
    if len(_LINES) >= _MAX_LINES_KEPT:
        _LINES.clear()
    shown_lines = tuple(lines)
    _LINES[key] = (frame.code, shown_lines)
    return shown_lines


def _joined(links: Sequence[tuple[BaseException, str]], lines: list[str]) -> list[str]:
    if len(links) == _MAX_LINKS:
        return ["… earlier exceptions left out …", "", *lines]
    return lines


def _frames(traceback: TracebackType | None) -> list[_Frame]:
    """The frames from the outermost one of the user on; those of this package that lead to it are
    left out, and those of the event loop between them."""
    frames: list[_Frame] = []
    first_foreign = 0
    is_leading = True
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(
            _Frame(code, traceback.tb_lasti, traceback.tb_lineno, traceback.tb_frame.f_globals)
        )
        if is_leading and code.co_filename.startswith(_CALLERS):
            first_foreign = len(frames)
        elif not code.co_filename.startswith(_EVENT_LOOP):
            is_leading = False
        traceback = traceback.tb_next
    return _without_steps(frames[first_foreign:])


def _without_steps(frames: list[_Frame]) -> list[_Frame]:
    """The frames without those between a handler and the function of its step."""
    foreign = [n for n, frame in enumerate(frames) if not _is_of_step(frame)]
    last = foreign[-1] if foreign else 0
    return [frame for n, frame in enumerate(frames) if n > last or not _is_of_step(frame)]


def _is_of_step(frame: _Frame) -> bool:
    return frame.code.co_filename.startswith(_STEPS)


def _marks(frame: _Frame, source: str) -> str:
    """``^^^`` under the part of the line that failed; empty if that is the whole line."""
    if not source.isascii() or frame.last_instruction < 0:
        return ""
    positions = next(islice(frame.code.co_positions(), frame.last_instruction // 2, None), None)
    if positions is None:
        return ""
    first, last, start, end = positions
    if first != last or first != frame.line or start is None or end is None:
        return ""
    indent = len(source) - len(source.lstrip())
    if start <= indent and end >= len(source):
        return ""
    return " " * (start - indent) + "^" * (end - start)


def _description(error: BaseException) -> list[str]:
    """The lines of an exception itself: its type, message and notes."""
    kind = type(error)
    name = kind.__qualname__
    module = str(kind.__module__)
    if module.startswith("forge_jobs."):
        module = "forge_jobs"
    if module not in ("builtins", "__main__"):
        name = f"{module}.{name}"
    message = _message(error)
    lines = (f"{name}: {message}" if message else name).splitlines()
    notes: object = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        for note in cast("list[object]", notes)[:_MAX_NOTES]:
            lines += _message(note).splitlines()
    return lines


def _message(value: object) -> str:
    try:
        text = str(value)[:_READ_CHARS]
    except BaseException:
        return f"<{type(value).__name__} that cannot be shown>"
    text = redact.prose(text)
    if len(text) <= _MAX_MESSAGE_CHARS:
        return text
    half = _MAX_MESSAGE_CHARS // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters left out … {text[-half:]}"


def redacted_code(line: str) -> str:
    """A line of source code whose literals hold no secret. Names and calls stay readable, which a
    rule for free text would hide (``token = read(path)``)."""
    return _LITERAL.sub(_redacted_literal, line)


def _redacted_literal(match: re.Match[str]) -> str:
    name, text = match["name"], match["text"]
    if name is not None and redact.is_secret_name(name):
        quote = match["quote"] or ""
        return f"{match['head']}{quote}{redact.HIDDEN}{quote}"
    if not text:
        return match[0]
    clean = redact.prose(text)
    return match[0] if clean == text else match[0].replace(text, clean)
