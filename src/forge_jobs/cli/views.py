"""``forge views``: named query lines for lists of jobs."""

from typing import Annotated

import typer

from forge_jobs.ops import saved_views as ops
from forge_jobs.ops.actions import Store
from forge_jobs.ops.saved_views import SavedView, SavedViewActions
from forge_jobs.ops.views import to_json

from . import terminal
from .options import AsJson, Url
from .session import actor, with_store

app = typer.Typer(
    no_args_is_help=True,
    help="List, save and delete named queries.\n\n\b\nExample:\n  forge views save 'dead mail' "
    "'kind:send_mail status:dead since:1d'",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the view.")]
Line = Annotated[str, typer.Argument(metavar="QUERY", help="The query line.")]


@app.command("list")
def list_views(url: Url = None, as_json: AsJson = False) -> None:
    """List saved views.

    \b
    Example:
      forge views list
    """
    views = with_store(url, ops.saved_views)
    if as_json:
        terminal.write_json(to_json({"views": views}))
    elif not views:
        terminal.console().print("No view is saved.")
    else:
        rows = terminal.table("NAME", "QUERY", fold=("QUERY",))
        for view in views:
            rows.add_row(view.name, view.query)
        terminal.console().print(rows)


@app.command("save")
def save_view(name: Name, query: Line, url: Url = None, as_json: AsJson = False) -> None:
    """Save a query under a name, in place of an earlier one.

    \b
    Example:
      forge views save 'dead mail' 'kind:send_mail status:dead since:1d'
    """

    async def work(store: Store) -> SavedView:
        return await SavedViewActions(store, actor=actor()).save(name, query)

    saved = with_store(url, work)
    if as_json:
        terminal.write_json(saved.to_json())
    else:
        terminal.console().print(f"saved: forge jobs list --query '{saved.query}'")


@app.command("delete")
def delete_view(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Delete a saved view.

    \b
    Example:
      forge views delete 'dead mail'
    """

    async def work(store: Store) -> None:
        await SavedViewActions(store, actor=actor()).delete(name)

    with_store(url, work)
    if as_json:
        terminal.write_json(to_json({"deleted": name}))
    else:
        terminal.console().print(f"deleted {name}")
