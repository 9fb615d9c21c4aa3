"""``forge alerts``: rules that send a message when something is wrong, and their episodes."""

import os
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import typer
from rich.table import Table

from forge_jobs.core.alert_rule import Condition, new_rule
from forge_jobs.core.errors import BadOption
from forge_jobs.ops import alerts as ops
from forge_jobs.ops.actions import Store
from forge_jobs.ops.alerts import AlertActions, AlertRuleView, EpisodeView
from forge_jobs.ops.views import to_json

from . import terminal
from .options import AsJson, Url
from .session import actor, with_store

app = typer.Typer(
    no_args_is_help=True,
    help="List, add and test alert rules.\n\n\b\nExample:\n  forge alerts add full backlog "
    "--above 1000 --webhook https://hooks.example/x",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the rule.")]
Above: TypeAlias = Annotated[
    str | None,
    typer.Option("--above", metavar="N", help="Opens above it: a number, 5% or a span (5m)."),
]
Below: TypeAlias = Annotated[
    str | None, typer.Option("--below", metavar="N", help="Closes at or under it.")
]
For: TypeAlias = Annotated[
    str | None, typer.Option("--for", metavar="SPAN", help="How long it must be above.")
]
Clear: TypeAlias = Annotated[
    str | None, typer.Option("--clear", metavar="SPAN", help="How long it must be low to close.")
]
OfQueue: TypeAlias = Annotated[
    str | None, typer.Option("--queue", metavar="NAME", help="Only this queue; else each by itself")
]
OfSchedule: TypeAlias = Annotated[
    str | None, typer.Option("--schedule", metavar="NAME", help="Only this schedule.")
]
Window: TypeAlias = Annotated[
    str | None, typer.Option("--window", metavar="SPAN", help="Of a dead rate; default 5m.")
]
MinJobs: TypeAlias = Annotated[
    int | None, typer.Option("--min-jobs", metavar="N", help="Of a dead rate: ended jobs at least.")
]
Webhook: TypeAlias = Annotated[
    str | None, typer.Option("--webhook", metavar="URL", help="Where messages go.")
]
SecretEnv: TypeAlias = Annotated[
    str | None,
    typer.Option("--secret-env", metavar="NAME", help="Variable with the secret that signs them."),
]
Quiet: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--quiet", metavar="TIMES", help='No messages, e.g. "sat,sun 00:00-24:00".'),
]
Zone: TypeAlias = Annotated[
    str | None, typer.Option("--tz", metavar="ZONE", help="Time zone of quiet times.")
]


@app.command("list")
def list_rules(url: Url = None, as_json: AsJson = False) -> None:
    """List the alert rules and their states.

    \b
    Example:
      forge alerts list
    """
    views = with_store(url, ops.alert_rules)
    if as_json:
        terminal.write_json(to_json(views))
    elif views:
        terminal.console().print(rule_table(views))
    else:
        terminal.console().print(
            "No alert rules yet: forge alerts add NAME CONDITION --webhook URL adds one. "
            f"Conditions: {', '.join(Condition)}."
        )


@app.command()
def add(
    name: Name,
    condition: Annotated[
        str, typer.Argument(metavar="CONDITION", help=f"One of {', '.join(Condition)}.")
    ],
    above: Above = None,
    below: Below = None,
    hold: For = None,
    clear: Clear = None,
    queue: OfQueue = None,
    schedule: OfSchedule = None,
    window: Window = None,
    min_jobs: MinJobs = None,
    webhook: Webhook = None,
    secret_env: SecretEnv = None,
    quiet: Quiet = None,
    tz: Zone = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Add an alert rule; the workers look every five seconds.

    \b
    Example:
      forge alerts add slow longest_wait --above 5m --for 1m --webhook https://hooks.example/x
    """
    fields = _fields(
        above=above, below=below, hold=hold, clear=clear, queue=queue, schedule=schedule,
        window=window, min_jobs=min_jobs, url=webhook, secret=_secret(secret_env), quiet=quiet,
        tz=tz,
    )  # fmt: skip
    rule = new_rule(name, condition, where=f"alert {name!r}", **fields)

    async def work(store: Store) -> AlertRuleView:
        return await AlertActions(store, actor=actor()).add(rule)

    _print_rule(with_store(url, work), as_json)


@app.command()
def edit(
    name: Name,
    above: Above = None,
    below: Below = None,
    hold: For = None,
    clear: Clear = None,
    queue: OfQueue = None,
    schedule: OfSchedule = None,
    window: Window = None,
    min_jobs: MinJobs = None,
    webhook: Webhook = None,
    secret_env: SecretEnv = None,
    quiet: Quiet = None,
    tz: Zone = None,
    enabled: Annotated[
        bool | None, typer.Option("--on/--off", help="Switch the rule on or off.")
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Change fields of an alert rule; code does not overwrite them.

    \b
    Example:
      forge alerts edit slow --above 10m --quiet "22:00-07:00" --tz Europe/Paris
      forge alerts edit slow --off
    """
    fields = _fields(
        above=above, below=below, hold=hold, clear=clear, queue=queue, schedule=schedule,
        window=window, min_jobs=min_jobs, url=webhook, secret=_secret(secret_env), quiet=quiet,
        tz=tz,
    )  # fmt: skip

    async def work(store: Store) -> AlertRuleView:
        actions = AlertActions(store, actor=actor())
        if enabled is not None and not fields:
            return await actions.enable(name, enabled)
        view = await actions.edit(name, fields)
        return view if enabled is None else await actions.enable(name, enabled)

    _print_rule(with_store(url, work), as_json)


@app.command()
def remove(name: Name, url: Url = None) -> None:
    """Remove an alert rule with its episodes.

    \b
    Example:
      forge alerts remove slow
    """

    async def work(store: Store) -> None:
        await AlertActions(store, actor=actor()).remove(name)

    with_store(url, work)
    terminal.console().print(f"Alert rule {name!r} is removed.")


@app.command("test")
def send_test(name: Name, url: Url = None, as_json: AsJson = False) -> None:
    """Send a test message to the receiver of a rule, by a job that a worker runs.

    \b
    Example:
      forge alerts test slow
    """

    async def work(store: Store) -> str:
        return await AlertActions(store, actor=actor()).test(name)

    job_id = with_store(url, work)
    if as_json:
        terminal.write_json(to_json({"job_id": job_id}))
    else:
        terminal.console().print(f"Job {job_id} sends the message: forge jobs show {job_id}")


@app.command("episodes")
def list_episodes(
    rule: Annotated[
        str | None, typer.Option("--rule", metavar="NAME", help="Only of this rule.")
    ] = None,
    only_open: Annotated[bool, typer.Option("--open", help="Only open ones.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many.")] = 100,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List episodes, the open ones first.

    \b
    Example:
      forge alerts episodes --open
    """

    async def work(store: Store) -> Sequence[EpisodeView]:
        return await ops.episodes(store, rule=rule, only_open=only_open, limit=limit)

    views = with_store(url, work)
    if as_json:
        terminal.write_json(to_json(views))
    elif views:
        terminal.console().print(episode_table(views))
    else:
        terminal.console().print("No episodes.")


def rule_table(views: Sequence[AlertRuleView]) -> Table:
    """Rules in 80 columns."""
    rows = terminal.table(
        "RULE", "CONDITION", "ABOVE", "FOR", "OF", "RECEIVER", "STATE",
        right=("ABOVE", "FOR"), shrink=("RULE", "OF", "RECEIVER"),
    )  # fmt: skip
    for view in views:
        rows.add_row(
            view.name,
            view.condition,
            view.above_text,
            terminal.span(view.for_s),
            view.queue or view.schedule or "each",
            view.url or "none",
            f"{view.open} open" if view.open else view.state,
        )
    return rows


def episode_table(views: Sequence[EpisodeView]) -> Table:
    """Episodes in 80 columns."""
    rows = terminal.table(
        "RULE", "SUBJECT", "VALUE", "OPENED", "CLOSED", right=("VALUE",), shrink=("RULE", "SUBJECT")
    )
    for view in views:
        closed = "open" if view.closed_at is None else f"{view.closed_at:%m-%d %H:%M:%S}"
        rows.add_row(
            view.rule, view.subject, view.value_text, f"{view.opened_at:%m-%d %H:%M:%S}", closed
        )
    return rows


def _fields(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _secret(variable: str | None) -> str | None:
    # Not from the command line: it would stand in the shell's history and in the process list.
    if variable is None:
        return None
    value = os.environ.get(variable)
    if not value:
        raise BadOption(f"the environment variable {variable!r} is not set: export it")
    return value


def _print_rule(view: AlertRuleView, as_json: bool) -> None:
    if as_json:
        terminal.write_json(view.to_json())
    else:
        terminal.console().print(rule_table([view]))
