"""``forge audit``: who did what."""

from typing import Annotated

import typer

from forge_jobs.ops.audit import AuditEntryView, read_entries
from forge_jobs.ops.views import to_json

from . import show
from .options import AsJson, Url
from .session import on_store


def audit(
    actor: Annotated[str, typer.Option(metavar="TEXT", help="A piece of who did it.")] = "",
    action: Annotated[str, typer.Option(metavar="TEXT", help="A piece of what was done.")] = "",
    subject: Annotated[str, typer.Option(metavar="TEXT", help="A piece of to what.")] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1_000, help="How many.")] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on behind an earlier page.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Who did what, newest first; entries are kept for 90 days.

    \b
    Example:
      forge audit --action retry
    """
    page = on_store(
        url,
        lambda store: read_entries(
            store, actor=actor, action=action, subject=subject, limit=limit, after=after
        ),
    )
    if as_json:
        show.write_json(to_json(page))
        return
    if not page.entries:
        show.console().print("Nothing yet: each retry, pause or edit leaves an entry here.")
        return
    made = show.table("WHEN", "WHO", "WHAT", "TO WHAT", "MORE", shrink=("TO WHAT", "MORE"))
    for line in page.entries:
        moment = f"{line.at:%Y-%m-%d %H:%M:%S}"
        made.add_row(moment, line.actor, line.action, line.subject, _more(line))
    show.console().print(made)
    if page.next is not None:
        show.messages().print(f"More: --after {page.next}")


def _more(line: AuditEntryView) -> str:
    return " ".join(f"{name}={value}" for name, value in line.detail.items() if value is not None)
