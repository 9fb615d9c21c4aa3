"""``telegram-gateway quarantine``: lists, shows and retries bodies that were not updates."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer

from .cli_session import BotOption, fail, make_gateway, run, select_bots
from .gateway import Gateway
from .storage import QuarantinedBody
from .update import read_update

T = TypeVar("T")
quarantine = typer.Typer(
    no_args_is_help=True, help="Bodies that Telegram delivered and that are not updates."
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Number = Annotated[int, typer.Argument(metavar="NUMBER", help="As in the list.")]
_SECOND = 1_000_000


@quarantine.command("list")
def list_bodies(
    bot: BotOption = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1_000, help="How many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List quarantined bodies, newest first. They are kept for seven days.

    \b
    Example:
      telegram-gateway quarantine list --bot shop
    """
    gateway = make_gateway()
    bot_id = None if bot is None else select_bots(gateway, bot)[0].id
    found = _with_storage(gateway, lambda: gateway.storage.quarantined(bot_id=bot_id, limit=limit))
    if as_json:
        _print_json([_summary(gateway, one) for one in found])
        return
    if not found:
        typer.echo("Nothing is quarantined.")
        return
    rows = [("NUMBER", "WHEN", "BOT", "BYTES", "WHY")]
    rows += [
        (str(one.id), _moment(one), _slug(gateway, one), f"{one.size:,}", _why(one))
        for one in found
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        typer.echo("  ".join([*cells, row[4]]))


@quarantine.command("show")
def show_body(number: Number, as_json: AsJson = False) -> None:
    """Show a quarantined body. Tokens and secrets in it are masked.

    \b
    Example:
      telegram-gateway quarantine show 12
    """
    gateway = make_gateway()
    found = _with_storage(gateway, lambda: _get(gateway, number))
    text = gateway.mask(found.body.decode("utf-8", "backslashreplace"))
    if as_json:
        _print_json({**_summary(gateway, found), "body": text})
        return
    typer.echo(f"number  {found.id}\nbot     {_slug(gateway, found)}\nwhen    {_moment(found)}")
    typer.echo(f"bytes   {found.size:,}\nwhy     {_why(found)}\n")
    # Control characters could change the terminal.
    typer.echo("".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1]
                       for char in text))  # fmt: skip


@quarantine.command("retry")
def retry_body(number: Number, as_json: AsJson = False) -> None:
    """Receive a quarantined body again, as if Telegram delivered it now.

    It leaves the quarantine if it is accepted. Use it after an upgrade that can read it.

    \b
    Example:
      telegram-gateway quarantine retry 12
    """
    gateway = make_gateway()
    status = _with_storage(gateway, lambda: _retry(gateway, number))
    if as_json:
        _print_json({"number": number, "outcome": status})
        return
    typer.echo(f"{number}: {status}")


async def _retry(gateway: Gateway, number: int) -> str:
    found = await _get(gateway, number)
    if not found.is_complete:
        fail(f"{number}: {_why(found)}: only a complete body can be received again")
    runtime = next((one for one in gateway.runtimes.values() if one.bot.id == found.bot_id), None)
    if runtime is None:
        fail(f"{number}: bot {found.bot_id} is not configured: add it to bots.yaml first", 2)
    try:
        read_update(found.body)
    except ValueError as error:
        fail(f"{number}: still not an update: {error}")
    status = await gateway.receiver.receive(runtime, found.body)
    if not status.acknowledged:
        fail(f"{number}: {status}: it stays in the quarantine; see the log, then try again")
    await gateway.storage.delete_quarantined(number)
    return str(status)


async def _get(gateway: Gateway, number: int) -> QuarantinedBody:
    found = await gateway.storage.quarantined_body(number)
    if found is None:
        fail(f"{number} is not in the quarantine: see `telegram-gateway quarantine list`")
    return found


def _with_storage(gateway: Gateway, work: Callable[[], Awaitable[T]]) -> T:
    if gateway.settings.database_url is None:
        fail("DATABASE_URL is not set: without it the quarantine is in the memory of the gateway")

    async def with_open_stores() -> T:
        try:
            await gateway.open_stores()
            return await work()
        finally:
            await gateway.close()

    return run(with_open_stores())


def _summary(gateway: Gateway, found: QuarantinedBody) -> dict[str, Any]:
    return {
        "number": found.id,
        "at": datetime.fromtimestamp(found.at / _SECOND, UTC).isoformat(),
        "bot": _slug(gateway, found),
        "bytes": found.size,
        "stored_bytes": len(found.body),
        "why": found.reason,
    }


def _slug(gateway: Gateway, found: QuarantinedBody) -> str:
    slugs = (bot.slug for bot in gateway.bots if bot.id == found.bot_id)
    return next(slugs, f"id {found.bot_id}")


def _moment(found: QuarantinedBody) -> str:
    return f"{datetime.fromtimestamp(found.at / _SECOND, UTC):%Y-%m-%d %H:%M:%S}"


def _why(found: QuarantinedBody) -> str:
    if found.is_complete:
        return found.reason
    if not found.body:
        return f"{found.reason}; not stored, it may contain a code"
    return f"{found.reason}; the first {len(found.body):,} bytes were stored"


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
