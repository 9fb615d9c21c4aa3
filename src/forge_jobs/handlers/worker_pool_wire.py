"""What a worker and the programs of a pool say to each other: one JSON object per line.

::

    program  {"ready": true}
    worker   {"id": "01J…", "payload": …}
    program  {"id": "01J…", "progress": 0.5, "note": "half"}      any number, also "log": "text"
    program  {"id": "01J…", "status": "ok", "result": …}
             {"id": "01J…", "status": "error", "message": "…"}
             {"id": "01J…", "status": "throttled", "retry_after_secs": 30}
             {"id": "01J…", "status": "dead", "message": "…"}

The end of its input tells a program to go.
"""

from typing import Any, Literal

import msgspec

from forge_jobs.core.outcome import Dead, Done, Failed, JobOutcome, Throttled
from forge_jobs.engine.running.context import Context


class OutOfStep(Exception):
    """The program said something that is no answer to what it was asked."""


class Ready(msgspec.Struct, frozen=True):
    """The first line of a program."""

    ready: bool = False


class Request(msgspec.Struct, frozen=True):
    """A job for the program."""

    id: str
    payload: Any


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the program; with ``status`` it is the last one for this job."""

    id: str
    status: Literal["ok", "error", "throttled", "dead"] | None = None
    message: str | None = None
    retry_after_secs: float | None = None
    result: Any = None
    progress: float | None = None
    note: str | None = None
    log: str | None = None


encode = msgspec.json.Encoder().encode
_read_ready = msgspec.json.Decoder(Ready).decode
_read_reply = msgspec.json.Decoder(Reply).decode


def is_ready(line: bytes) -> bool:
    """Whether a first line says that the program listens."""
    try:
        return _read_ready(line).ready
    except (msgspec.DecodeError, UnicodeError):
        return False


def heard(ctx: Context, line: bytes) -> JobOutcome | None:
    """The outcome behind a line, or None for one in between, which is passed on. OutOfStep when it
    is not JSON, not a reply, or for another job."""
    try:
        reply = _read_reply(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise OutOfStep(f"it sent a line that is no reply: {error}") from None
    if reply.id != ctx.job.id:
        raise OutOfStep("it answered with the id of another request")
    match reply.status:
        case None:
            _pass_on(ctx, reply)
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
        raise OutOfStep("its retry_after_secs is no number of seconds")
    return wait_s


def _pass_on(ctx: Context, reply: Reply) -> None:
    if reply.progress is not None:
        if not 0 <= reply.progress <= 1:
            raise OutOfStep("its progress does not lie between 0 and 1")
        ctx.progress(reply.progress, reply.note)
    elif reply.log is None:
        raise OutOfStep("it sent a line without status, progress or log")
    if reply.log is not None:
        ctx.log.info("%s", reply.log)
