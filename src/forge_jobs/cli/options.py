"""Options that several commands share, and the parsing of their values."""

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import SECOND, Instant, seconds
from forge_jobs.core.selection import Filter
from forge_jobs.core.status import JobStatus
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock

Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Store address. Default: FORGE_URL, then forge.toml, then sqlite:///forge.db.",
        show_default=False,
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Yes, remove the data.")]
Unchecked: TypeAlias = Annotated[
    bool, typer.Option("--force", help="Do not check kind and arguments.")
]
Queue: TypeAlias = Annotated[
    str | None, typer.Option("--queue", metavar="NAME", help="Only this queue.")
]
Kind: TypeAlias = Annotated[
    str | None, typer.Option("--kind", metavar="KIND", help="Only this kind of task.")
]
Statuses: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--status", metavar="STATE", help="Only this state; may be repeated."),
]
Tag: TypeAlias = Annotated[
    str | None, typer.Option("--tag", metavar="TAG", help="Only jobs with this tag.")
]
ErrorText: TypeAlias = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only where the error holds TEXT.")
]
QueryLine: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--query", metavar="QUERY", help="A query line, e.g. 'kind:send_mail to:ann@ since:1h'."
    ),
]
OlderThan: TypeAlias = Annotated[
    str | None, typer.Option("--older-than", metavar="SPAN", help="Enqueued before, e.g. 7d.")
]
NewerThan: TypeAlias = Annotated[
    str | None, typer.Option("--newer-than", metavar="SPAN", help="Enqueued within, e.g. 10m.")
]


def statuses_of(texts: Sequence[str]) -> tuple[JobStatus, ...]:
    """States by name, separated by commas. ``in_progress`` is an alias of ``running``."""
    found: list[JobStatus] = []
    for word in (part.strip() for text in texts for part in text.split(",")):
        name = "running" if word == "in_progress" else word
        if name not in JobStatus.__members__.values():
            raise BadOption(f"--status {word!r} is no state: use {', '.join(JobStatus)}")
        found.append(JobStatus(name))
    return tuple(dict.fromkeys(found))


def filter_of(
    *,
    queue: str | None = None,
    kind: str | None = None,
    statuses: Sequence[str] | None = None,
    tag: str | None = None,
    error: str | None = None,
    older_than: str | None = None,
    newer_than: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Filter:
    """The filter that a command's options describe."""
    return Filter(
        queue=queue,
        kind=kind,
        statuses=statuses_of(statuses or ()),
        tag=tag,
        error=error,
        enqueued_from=_before(newer_than, "--newer-than", clock),
        enqueued_until=_before(older_than, "--older-than", clock),
    )


def _before(span: str | None, field: str, clock: Clock) -> Instant | None:
    if span is None:
        return None
    return clock.now() - round(seconds(as_span(span), field=field) * SECOND)


def as_span(text: str) -> str | float:
    """A duration from the command line; a plain number is seconds."""
    try:
        return float(text)
    except ValueError:
        return text
