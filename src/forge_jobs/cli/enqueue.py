"""``forge enqueue``: enqueues one job by kind."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from forge_jobs.core import payload as json_payload
from forge_jobs.core.errors import BadOption
from forge_jobs.ops.views import to_json

from . import terminal
from .options import AsJson, Url, as_span
from .session import with_forge

if TYPE_CHECKING:
    from forge_jobs.app import Forge


def enqueue(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The task's kind.")],
    payload: Annotated[
        str,
        typer.Argument(metavar="JSON", help="Arguments by name, as a JSON object; - reads stdin."),
    ] = "{}",
    queue: Annotated[
        str | None,
        typer.Option("--queue", metavar="NAME", help="Default: the kind's queue, else `default`."),
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="SPAN", help="Start later, e.g. 10m.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="N", help="Lower starts first; default 0.")
    ] = None,
    dedupe_key: Annotated[
        str | None,
        typer.Option("--dedupe-key", metavar="KEY", help="One live job per kind and key."),
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", metavar="N", help="Default 5.")
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="May be repeated.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue one job by kind and print its id.

    \b
    Example:
      forge enqueue send '{"to": "a@b.c"}' --queue mail --delay 10m
    """
    text = sys.stdin.read() if payload == "-" else payload
    arguments = json_payload.decode_text(text)
    if not isinstance(arguments, dict):
        raise BadOption("JSON must be an object of arguments by name, such as '{\"a\": 1}'")
    named = cast("dict[str, Any]", arguments)
    options: dict[str, Any] = {
        "queue": queue,
        "delay": None if delay is None else as_span(delay),
        "priority": priority,
        "dedupe_key": dedupe_key,
        "max_attempts": max_attempts,
        "tags": tags or None,
    }
    given = {name: value for name, value in options.items() if value is not None}

    async def work(forge: "Forge") -> Any:
        return await forge.aenqueue(kind, named, **given)

    job = with_forge(url, work)
    if as_json:
        terminal.write_json(to_json({"id": job.id, "kind": kind, "duplicate": job.duplicate}))
    else:
        terminal.console().print(job.id)
        if job.duplicate:
            terminal.messages().print("That dedupe key is taken: this is the existing job.")
