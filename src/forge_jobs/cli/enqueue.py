"""``forge enqueue``: enqueues one job by kind."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from forge_jobs.core import payload as json_payload
from forge_jobs.core.errors import BadOption
from forge_jobs.core.names import kind_name
from forge_jobs.ops.views import to_json

from . import terminal
from .options import AsJson, Unchecked, Url, as_span
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
        int | None,
        typer.Option("--priority", metavar="N", help="Lower first. Default: the task's."),
    ] = None,
    dedupe_key: Annotated[
        str | None,
        typer.Option("--dedupe-key", metavar="KEY", help="One live job per kind and key."),
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", metavar="N", help="Default: the task's, else 5.")
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="May be repeated.")
    ] = None,
    force: Unchecked = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue one job by kind and print its id.

    Kind and argument names are checked against what workers have published. What is not given here
    is what the task declares.

    \b
    Example:
      forge enqueue send '{"to": "a@b.c"}' --queue mail --delay 10m
    """
    named = _arguments(payload)
    options: dict[str, Any] = {
        "queue": queue,
        "delay": None if delay is None else as_span(delay),
        "priority": priority,
        "dedupe_key": dedupe_key,
        "max_attempts": max_attempts,
        "tags": tags or None,
    }
    given = {name: value for name, value in options.items() if value is not None}

    job, checked = with_forge(url, lambda forge: _enqueue(forge, kind, named, given, force))
    if as_json:
        terminal.write_json(to_json({"id": job.id, "kind": kind, "duplicate": job.duplicate}))
    else:
        terminal.console().print(job.id)
        if job.duplicate:
            terminal.messages().print("That dedupe key is taken: this is the existing job.")
    if not checked and not force:
        terminal.messages().print("No worker has published its tasks yet: stored unchecked.")


async def _enqueue(
    forge: "Forge", kind: str, named: dict[str, Any], options: dict[str, Any], force: bool
) -> tuple[Any, bool]:
    """The job, and whether kind and arguments could be checked."""
    from forge_jobs.ops.published_check import check_published

    checked = False
    if not force:
        store = await forge.aready()
        checked = await check_published(store, kind_name(kind), named, remedy="--force")
    return await forge.aenqueue(kind, named, check=False, **options), checked


def _arguments(payload: str) -> dict[str, Any]:
    arguments = json_payload.decode_text(sys.stdin.read() if payload == "-" else payload)
    if not isinstance(arguments, dict):
        raise BadOption("JSON must be an object of arguments by name, such as '{\"a\": 1}'")
    return cast("dict[str, Any]", arguments)
