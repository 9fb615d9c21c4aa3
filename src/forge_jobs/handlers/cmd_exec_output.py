"""What a command wrote, as text for people: the result of a success, log lines of a failure."""

from collections.abc import Iterator
from typing import Any, Final

from forge_jobs.engine.running.context import LINE_LONGEST
from forge_jobs.kit.children.process import ChildExit
from forge_jobs.kit.children.streams import HeadTailStream

TAIL_LONGEST: Final = 1_000
_PIECE: Final = LINE_LONGEST - 96


def as_text(stream: HeadTailStream) -> str:
    """What was kept, with a note where something was left out. Never a NUL, never a broken
    character at a cut that we made."""
    head, tail = stream.head_and_tail()
    omitted_bytes = stream.omitted_bytes
    if not omitted_bytes:
        return _decoded(head + tail)
    # A cut may fall into the middle of a character of several bytes.
    head, tail = _whole_end(head), tail.lstrip(bytes(range(0x80, 0xC0)))
    return f"{_decoded(head)}\n… {omitted_bytes:,} bytes left out …\n{_decoded(tail)}"


def result(
    ended: ChildExit, stdout: HeadTailStream, stderr: HeadTailStream, ran_s: float
) -> dict[str, Any]:
    """The job's result."""
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


def last_words(stdout: HeadTailStream, stderr: HeadTailStream) -> str:
    """The end of standard error, or of standard output if that said nothing."""
    for stream in (stderr, stdout):
        text = as_text(stream).strip()
        if text:
            return text if len(text) <= TAIL_LONGEST else "…" + text[-TAIL_LONGEST:]
    return ""


def log_lines(
    told: str, stdout: HeadTailStream, stderr: HeadTailStream, ran_s: float
) -> Iterator[tuple[str, str]]:
    """(level, text) for the job's log: how it ended, then both streams in pieces of many lines."""
    yield (
        "warning",
        f"{told} after {ran_s:.3f} s; stdout {stdout.total:,} bytes, stderr {stderr.total:,} bytes",
    )
    for name, stream in (("stdout", stdout), ("stderr", stderr)):
        for piece in _pieces(as_text(stream)):
            yield "info", f"{name}: {piece}"


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + _PIECE
        if end < len(text):
            at_break = text.rfind("\n", start, end)
            end = at_break + 1 if at_break > start else end
        yield text[start:end].rstrip("\n")
        start = end


def _decoded(data: bytes) -> str:
    return data.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _whole_end(data: bytes) -> bytes:
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data if length <= back else data[:-back]
    return data
