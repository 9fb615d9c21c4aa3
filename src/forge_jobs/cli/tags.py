"""``forge tags``: what the runs of jobs with a tag came to."""

from typing import Annotated

import typer
from rich.text import Text

from forge_jobs.ops import tags
from forge_jobs.ops.tags import TagNumbers
from forge_jobs.ops.views import to_json

from . import terminal
from .options import AsJson, Url
from .session import with_store
from .tasks import After, Limit, Range

app = typer.Typer(
    no_args_is_help=True,
    help="What the runs of each tag came to: which tenant is noisy.\n\n"
    "\b\nExample:\n  forge tags list --range 24h",
)


@app.command("list")
def list_tags(
    range_name: Range = "1h",
    sort: Annotated[
        str, typer.Option("--sort", metavar="WORD", help="share, name, runs, failures or wait.")
    ] = "share",
    limit: Limit = 100,
    after: After = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List tags, those first whose jobs took most of the run time.

    \b
    Example:
      forge tags list --range 24h --sort failures
    """
    page = with_store(
        url,
        lambda store: tags.tags(store, range_name=range_name, sort=sort, limit=limit, after=after),
    )
    if as_json:
        terminal.write_json(page.to_json())
        return
    out = terminal.console()
    if not page.tags and page.other is None:
        out.print("No job with a tag has run: task.using(tags=[...]) gives it some.")
        return
    rows = terminal.table(
        "TAG", "RUNS", "FAILED", "RUN TIME", "SHARE", "MEAN RUN", "MEAN WAIT",
        right=("RUNS", "FAILED", "RUN TIME", "SHARE", "MEAN RUN", "MEAN WAIT"), shrink=("TAG",),
    )  # fmt: skip
    for tag in page.tags:
        rows.add_row(terminal.cut(tag.tag), *_cells(tag.numbers, f"{tag.run_share:.1%}"))
    if page.other is not None:
        rows.add_row(terminal.cut("(other)"), *_cells(page.other, "-"))
    out.print(rows)
    if page.next is not None:
        terminal.messages().print(f"More: --after {page.next!r}")


@app.command("show")
def show_tag(
    tag: Annotated[str, typer.Argument(metavar="TAG", help="The tag, as jobs carry it.")],
    range_name: Range = "1h",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show one tag, with the queues and kinds in which its jobs ran.

    \b
    Example:
      forge tags show tenant:acme --range 24h
    """
    detail = with_store(url, lambda store: tags.tag(store, tag, range_name=range_name))
    if as_json:
        terminal.write_json(to_json(detail))
        return
    numbers = detail.tag.numbers
    out = terminal.console()
    out.print(
        terminal.facts([
            ("tag", detail.tag.tag),
            ("since", f"{detail.since:%Y-%m-%d %H:%M} UTC"),
            ("runs", f"{numbers.runs:,}, {numbers.failed:,} failed"),
            ("run time", terminal.span(numbers.ran_s)),
            ("mean run", terminal.span(numbers.mean_run_s)),
            ("mean wait", terminal.span(numbers.mean_wait_s)),
        ])
    )  # fmt: skip
    rows = terminal.table(
        "KIND", "QUEUE", "RUNS", "FAILED", "RUN TIME", "SHARE", "MEAN RUN", "MEAN WAIT",
        right=("RUNS", "FAILED", "RUN TIME", "SHARE", "MEAN RUN", "MEAN WAIT"),
        shrink=("KIND", "QUEUE"),
    )  # fmt: skip
    for task in detail.tasks:
        rows.add_row(
            terminal.cut(task.kind or "(other)"),
            terminal.cut(task.queue),
            *_cells(task.numbers, f"{task.run_share:.1%}"),
        )
    out.print(rows)


def _cells(numbers: TagNumbers, share: str) -> tuple[str | Text, ...]:
    return (
        terminal.number(numbers.runs),
        terminal.alarm(numbers.failed),
        terminal.span(numbers.ran_s),
        share,
        terminal.span(numbers.mean_run_s),
        terminal.span(numbers.mean_wait_s),
    )
