"""``forge limits``: the rate limits that handlers keep to."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from forge_jobs.ops import limits as ops
from forge_jobs.ops.act import Store
from forge_jobs.ops.limits import LimitOperator, RateLimitView
from forge_jobs.ops.views import to_json

from . import show
from .options import AsJson, Url
from .session import actor, on_store

app = typer.Typer(
    no_args_is_help=True,
    help="List, set and drain rate limits.\n\n\b\nExample:\n  forge limits set smtp 50/m",
)

Scope = Annotated[str, typer.Argument(metavar="SCOPE", help="The scope handlers name.")]


@app.command("list")
def list_limits(url: Url = None, as_json: AsJson = False) -> None:
    """List rate limits and the permits left.

    \b
    Example:
      forge limits list
    """
    views = on_store(url, ops.rate_limits)
    if as_json:
        show.write_json(to_json({"rate_limits": views}))
        return
    if not views:
        show.console().print(
            'No rate limits yet: forge.rate_limit("smtp", "50/m") declares one, '
            "forge limits set smtp 50/m sets it."
        )
        return
    show.console().print(rate_table(views))


@app.command("set")
def set_limit(
    scope: Scope,
    rate: Annotated[
        str | None, typer.Argument(metavar="RATE", help="For example 50/m, 100/s or 10/30s.")
    ] = None,
    burst: Annotated[
        float | None, typer.Option("--burst", metavar="N", help="How many permits at once.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Set the rate of a scope over the whole cluster; workers follow within seconds.

    \b
    Example:
      forge limits set smtp 50/m --burst 10
    """

    async def work(store: Store) -> RateLimitView:
        return await LimitOperator(store, actor=actor()).set_rate(scope, rate, burst=burst)

    _print_one(on_store(url, work), as_json)


@app.command()
def drain(scope: Scope, url: Url = None, as_json: AsJson = False) -> None:
    """Empty a scope's bucket: nobody gets a permit until it has refilled.

    \b
    Example:
      forge limits drain smtp
    """

    async def work(store: Store) -> RateLimitView:
        return await LimitOperator(store, actor=actor()).drain(scope)

    _print_one(on_store(url, work), as_json)


def rate_table(views: Sequence[RateLimitView]) -> Table:
    """Rate limits in 80 columns."""
    numbers = ("RATE", "BURST", "LEFT", "NEXT")
    made = show.table("SCOPE", *numbers, right=numbers, shrink=("SCOPE",))
    for view in views:
        made.add_row(
            view.scope,
            view.rate,
            f"{view.burst:g}",
            show.number(view.available),
            "now" if view.available else show.span(view.next_in_s),
        )
    return made


def _print_one(view: RateLimitView, as_json: bool) -> None:
    if as_json:
        show.write_json(view.to_json())
    else:
        show.console().print(rate_table([view]))
