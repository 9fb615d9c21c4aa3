"""Formats the output of a command: the result of a success, the log lines of a failure."""

from collections.abc import Iterator
from typing import Any, Final

from forge_jobs.engine.running.context import MAX_LINE_CHARS
from forge_jobs.kit.children.process import ChildExit
from forge_jobs.kit.children.streams import HeadTailStream

MAX_TAIL_LENGTH: Final = 1_000
_MAX_PIECE: Final = MAX_LINE_CHARS - 96


def as_text(stream: HeadTailStream) -> str:
    """The kept output, with a note where bytes were dropped. Holds no NUL, and no broken character
    where the head or the tail was cut."""
    head, tail = stream.head_and_tail()
    omitted_bytes = stream.omitted_bytes
    if not omitted_bytes:
        return _decode(head + tail)
    # A cut may fall into a multi-byte character.
    head, tail = _without_partial_end(head), tail.lstrip(bytes(range(0x80, 0xC0)))
    return f"{_decode(head)}\n… {omitted_bytes:,} bytes left out …\n{_decode(tail)}"


def result(
    ended: ChildExit, stdout: HeadTailStream, stderr: HeadTailStream, ran_s: float
) -> dict[str, Any]:
    """The job's result as JSON."""
    return {
        "exit_code": ended.status,
        "stdout": as_text(stdout),
        "stderr": as_text(stderr),
        "stdout_bytes": stdout.total,
        "stderr_bytes": stderr.total,
        "stdout_left_out": stdout.omitted_bytes,
        "stderr_left_out": stderr.omitted_bytes,
        "seconds": round(ran_s, 3),
    }


def output_tail(stdout: HeadTailStream, stderr: HeadTailStream) -> str:
    """The tail of standard error, or of standard output if standard error is empty."""
    for stream in (stderr, stdout):
        text = as_text(stream).strip()
        if text:
            return text if len(text) <= MAX_TAIL_LENGTH else "…" + text[-MAX_TAIL_LENGTH:]
    return ""


def log_lines(
    how: str, stdout: HeadTailStream, stderr: HeadTailStream, ran_s: float
) -> Iterator[tuple[str, str]]:
    """(level, text) for the job's log: how the command ended, then both streams in pieces that fit
    a log line."""
    yield (
        "warning",
        f"{how} after {ran_s:.3f} s; stdout {stdout.total:,} bytes, stderr {stderr.total:,} bytes",
    )
    for name, stream in (("stdout", stdout), ("stderr", stderr)):
        for piece in _pieces(as_text(stream)):
            yield "info", f"{name}: {piece}"


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + _MAX_PIECE
        if end < len(text):
            line_break = text.rfind("\n", start, end)
            end = line_break + 1 if line_break > start else end
        yield text[start:end].rstrip("\n")
        start = end


def _decode(data: bytes) -> str:
    return data.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _without_partial_end(data: bytes) -> bytes:
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data if length <= back else data[:-back]
    return data
