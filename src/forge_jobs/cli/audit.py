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
    """List operator actions and log-ins, newest first; entries are kept for 90 days.

    MORE has the outcome, and changed settings as before→after. With --json, an entry also has the
    role and the ids of the first 100 jobs of a bulk action.

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
        terminal.console().print(
            "Nothing yet: each log-in, retry, pause or edit leaves an entry here."
        )
        return
    rows = terminal.table("WHEN", "WHO", "WHAT", "TO WHAT", "MORE", shrink=("TO WHAT", "MORE"))
    for line in page.entries:
        time = f"{line.at:%Y-%m-%d %H:%M:%S}"
        who = f"{line.actor}\n{line.address}" if line.address else line.actor
        rows.add_row(time, who, line.action, line.subject, _detail(line))
    terminal.console().print(rows)
    if page.next is not None:
        terminal.messages().print(f"More: --after {page.next}")


def _detail(line: AuditEntryView) -> str:
    """The outcome without counts of zero, and each change as ``slots=3→5``."""
    changed = {**line.before, **line.after}
    parts = [
        f"{name}={value}"
        for name, value in line.detail.items()
        if value not in (None, 0) and name not in changed
    ]
    if line.before:
        parts += [
            f"{name}={_text(line.before.get(name))}→{_text(line.after.get(name))}"
            for name in changed
        ]
    else:  # something was created
        parts += [f"{name}={value}" for name, value in line.after.items() if value]
    return " ".join(parts)


def _text(value: object) -> str:
    return "–" if value is None else str(value)
