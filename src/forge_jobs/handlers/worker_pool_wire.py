"""The protocol between a worker and the programs of a pool: one JSON object per line.

::

    program  {"ready": true}
    worker   {"id": "01J…", "payload": …}
    program  {"id": "01J…", "progress": 0.5, "note": "half"}      any number, also "log": "text"
    program  {"id": "01J…", "status": "ok", "result": …}
             {"id": "01J…", "status": "error", "message": "…"}
             {"id": "01J…", "status": "throttled", "retry_after_secs": 30}
             {"id": "01J…", "status": "dead", "message": "…"}

At end of file on its input a program must exit.
"""

from typing import Any, Literal

import msgspec

from forge_jobs.core.outcome import Dead, Done, Failed, JobOutcome, Throttled
from forge_jobs.engine.running.context import Context


class ProtocolError(Exception):
    """The program sent a line that is not a reply to its current job."""


class ReadyLine(msgspec.Struct, frozen=True):
    """The first line of a program."""

    ready: bool = False


class JobRequest(msgspec.Struct, frozen=True):
    """The line that sends a job to the program."""

    id: str
    payload: Any


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the program about a job. The one with ``status`` is the last one of the job."""

    id: str
    status: Literal["ok", "error", "throttled", "dead"] | None = None
    message: str | None = None
    retry_after_secs: float | None = None
    result: Any = None
    progress: float | None = None
    note: str | None = None
    log: str | None = None


encode = msgspec.json.Encoder().encode
_decode_ready = msgspec.json.Decoder(ReadyLine).decode
_decode_reply = msgspec.json.Decoder(Reply).decode


def is_ready(line: bytes) -> bool:
    """Whether a program's first line is its ready line."""
    try:
        return _decode_ready(line).ready
    except (msgspec.DecodeError, UnicodeError):
        return False


def handle_reply(ctx: Context, line: bytes) -> JobOutcome | None:
    """The outcome in a reply line; None after progress or a log line, which go to ``ctx``.

    Raises ProtocolError for a line that is not JSON, not a reply, or about another job.
    """
    try:
        reply = _decode_reply(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ProtocolError(f"it sent a line that is no reply: {error}") from None
    if reply.id != ctx.job.id:
        raise ProtocolError("it answered with the id of another request")
    match reply.status:
        case None:
            _record_progress(ctx, reply)
            return None
        case "ok":
            return Done(reply.result)
        case "error":
            return Failed(reply.message or "the program reported an error")
        case "dead":
            return Dead(reply.message or "the program reported a permanent error")
        case "throttled":
            return Throttled(_seconds(reply.retry_after_secs))


def _seconds(wait_s: float | None) -> float | None:
    if wait_s is not None and not 0 <= wait_s <= 365 * 86_400:
        raise ProtocolError("its retry_after_secs is no number of seconds")
    return wait_s


def _record_progress(ctx: Context, reply: Reply) -> None:
    if reply.progress is not None:
        if not 0 <= reply.progress <= 1:
            raise ProtocolError("its progress does not lie between 0 and 1")
        ctx.progress(reply.progress, reply.note)
    elif reply.log is None:
        raise ProtocolError("it sent a line without status, progress or log")
    if reply.log is not None:
        ctx.log.info("%s", reply.log)
