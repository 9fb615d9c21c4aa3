"""``forge limits``: rate limits of handlers, limits of tasks and queues, throttle scopes."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from forge_jobs.core.errors import BadOption
from forge_jobs.ops import declared_limits
from forge_jobs.ops import rate_limits as ops
from forge_jobs.ops.actions import Store
from forge_jobs.ops.declared_limits import LimitActions, LimitView, ScopeView
from forge_jobs.ops.rate_limits import RateLimitActions, RateLimitView
from forge_jobs.ops.views import to_json

from . import terminal
from .options import AsJson, Url
from .session import actor, with_store

app = typer.Typer(
    no_args_is_help=True,
    help="List, set and clear limits.\n\n\b\nExample:\n  forge limits set smtp 50/m",
)

Scope = Annotated[str, typer.Argument(metavar="SCOPE", help="The scope that handlers use.")]


@app.command("list")
def list_limits(url: Url = None, as_json: AsJson = False) -> None:
    """List rate limits and the permits left, declared limits and throttle scopes.

    \b
    Example:
      forge limits list
    """

    async def work(
        store: Store,
    ) -> tuple[Sequence[RateLimitView], Sequence[LimitView], Sequence[ScopeView]]:
        return (
            await ops.rate_limits(store),
            await declared_limits.declared_limits(store),
            await declared_limits.scopes(store),
        )

    views, declared, scopes = with_store(url, work)
    if as_json:
        terminal.write_json(to_json({"rate_limits": views, "limits": declared, "scopes": scopes}))
        return
    if not views and not declared and not scopes:
        terminal.console().print(
            'No rate limits yet: forge.rate_limit("smtp", "50/m") declares one, '
            "forge limits set smtp 50/m sets it. Limits of tasks: @forge.task(concurrency=5)."
        )
        return
    for shown in (
        rate_table(views) if views else None,
        limit_table(declared) if declared else None,
        scope_table(scopes) if scopes else None,
    ):
        if shown is not None:
            terminal.console().print(shown)


@app.command("set")
def set_limit(
    scope: Scope,
    rate: Annotated[
        str | None, typer.Argument(metavar="RATE", help="For example 50/m, 100/s or 10/30s.")
    ] = None,
    burst: Annotated[
        float | None, typer.Option("--burst", metavar="N", help="How many permits at once.")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", help="Of task:KIND or queue:NAME: at once."),
    ] = None,
    lift: Annotated[
        bool, typer.Option("--lift", help="Of task:KIND or queue:NAME: remove the limit.")
    ] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Set the rate of a scope, or the limit of task:KIND or queue:NAME, over the whole cluster.

    \b
    Example:
      forge limits set smtp 50/m --burst 10
      forge limits set task:send --concurrency 5
    """
    if scope.startswith(("task:", "queue:")):

        async def set_declared(store: Store) -> LimitView:
            return await LimitActions(store, actor=actor()).set(
                scope, concurrency=concurrency, rate=rate, burst=burst, lift=lift
            )

        _print_limit(with_store(url, set_declared), as_json)
        return
    if concurrency is not None or lift:
        raise BadOption(f"--concurrency and --lift are for task:KIND and queue:NAME, not {scope!r}")

    async def work(store: Store) -> RateLimitView:
        return await RateLimitActions(store, actor=actor()).set_rate(scope, rate, burst=burst)

    _print_rate_limit(with_store(url, work), as_json)


@app.command()
def reset(name: Scope, url: Url = None) -> None:
    """Return the limit of task:KIND or queue:NAME to the one declared in code.

    \b
    Example:
      forge limits reset task:send
    """

    async def work(store: Store) -> None:
        await LimitActions(store, actor=actor()).reset(name)

    with_store(url, work)
    terminal.console().print(f"{name}: the next worker that starts sets it from code.")


@app.command()
def clear(scope: Scope, url: Url = None) -> None:
    """Open a throttled scope now, so that its jobs start at once.

    \b
    Example:
      forge limits clear smtp
    """

    async def work(store: Store) -> None:
        await LimitActions(store, actor=actor()).open_scope(scope)

    with_store(url, work)
    terminal.console().print(f"Scope {scope!r} is open.")


@app.command()
def drain(scope: Scope, url: Url = None, as_json: AsJson = False) -> None:
    """Empty a scope's token bucket: there are no permits until it has refilled.

    \b
    Example:
      forge limits drain smtp
    """

    async def work(store: Store) -> RateLimitView:
        return await RateLimitActions(store, actor=actor()).drain(scope)

    _print_rate_limit(with_store(url, work), as_json)


def rate_table(views: Sequence[RateLimitView]) -> Table:
    """Rate limits in 80 columns."""
    numbers = ("RATE", "BURST", "LEFT", "NEXT")
    rows = terminal.table("SCOPE", *numbers, right=numbers, shrink=("SCOPE",))
    for view in views:
        rows.add_row(
            view.scope,
            view.rate,
            f"{view.burst:g}",
            terminal.number(view.available),
            "now" if view.available else terminal.span(view.next_in_s),
        )
    return rows


def limit_table(views: Sequence[LimitView]) -> Table:
    """Declared limits in 80 columns."""
    numbers = ("AT ONCE", "RUNNING", "RATE", "LEFT")
    rows = terminal.table(
        "LIMIT", *numbers, "PER", "SET BY", right=numbers, shrink=("LIMIT", "PER")
    )
    for view in views:
        rows.add_row(
            view.name,
            "-" if view.concurrency is None else str(view.concurrency),
            terminal.number(view.running),
            view.rate or "-",
            "-" if view.available is None else terminal.number(view.available),
            view.per or "-",
            "operator" if view.by_operator else "code",
        )
    return rows


def scope_table(views: Sequence[ScopeView]) -> Table:
    """Throttle scopes in 80 columns."""
    rows = terminal.table("SCOPE", "STATE", "TASKS", shrink=("SCOPE", "TASKS"))
    for view in views:
        until = view.closed_until
        state = "open" if until is None else f"closed until {until:%H:%M:%S} UTC"
        rows.add_row(view.scope, state, ", ".join(view.tasks) or "-")
    return rows


def _print_limit(view: LimitView, as_json: bool) -> None:
    if as_json:
        terminal.write_json(view.to_json())
    else:
        terminal.console().print(limit_table([view]))


def _print_rate_limit(view: RateLimitView, as_json: bool) -> None:
    if as_json:
        terminal.write_json(view.to_json())
    else:
        terminal.console().print(rate_table([view]))
