"""``forge audit``: lists the actions of operators."""

from typing import Annotated

import typer

from forge_jobs.ops.audit import AuditEntryView, read_entries
from forge_jobs.ops.views import to_json

from . import terminal
from .options import AsJson, Url
from .session import with_store


def audit(
    actor: Annotated[str, typer.Option(metavar="TEXT", help="Part of the actor's name.")] = "",
    action: Annotated[str, typer.Option(metavar="TEXT", help="Part of the action.")] = "",
    subject: Annotated[str, typer.Option(metavar="TEXT", help="Part of the subject.")] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1_000, help="How many.")] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Continue after an earlier page.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List operator actions, newest first; entries are kept for 90 days.

    \b
    Example:
      forge audit --action retry
    """
    page = with_store(
        url,
        lambda store: read_entries(
            store, actor=actor, action=action, subject=subject, limit=limit, after=after
        ),
    )
    if as_json:
        terminal.write_json(to_json(page))
        return
    if not page.entries:
        terminal.console().print("Nothing yet: each retry, pause or edit leaves an entry here.")
        return
    rows = terminal.table("WHEN", "WHO", "WHAT", "TO WHAT", "MORE", shrink=("TO WHAT", "MORE"))
    for line in page.entries:
        time = f"{line.at:%Y-%m-%d %H:%M:%S}"
        rows.add_row(time, line.actor, line.action, line.subject, _detail(line))
    terminal.console().print(rows)
    if page.next is not None:
        terminal.messages().print(f"More: --after {page.next}")


def _detail(line: AuditEntryView) -> str:
    return " ".join(f"{name}={value}" for name, value in line.detail.items() if value is not None)
