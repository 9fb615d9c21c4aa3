"""What the commands share: the configuration, the chosen bots, and how a command fails."""

import asyncio
import os
from collections.abc import Coroutine
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from forge_jobs import ForgeError

from .bot_api import ApiError, NoResponse
from .config import Bot, Settings, load
from .gateway import Gateway

T = TypeVar("T")
BotOption = Annotated[str | None, typer.Option("--bot", help="One bot, by slug; else all.")]


def load_config() -> tuple[Settings, list[Bot], list[str]]:
    """Settings, bots and warnings; exits with 2 and every mistake."""
    try:
        return load(os.environ)
    except ForgeError as error:
        fail(str(error), 2)


def make_gateway() -> Gateway:
    """The gateway of the environment; nothing is opened. Warnings go to standard error."""
    settings, bots, warnings = load_config()
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    try:
        return Gateway(settings, bots)
    except ForgeError as error:
        fail(str(error), 2)


def select_bots(gateway: Gateway, slug: str | None) -> list[Bot]:
    """The bot of that slug, or all bots; exits with 2 for an unknown one."""
    found = [bot for bot in gateway.bots if slug is None or bot.slug == slug]
    if not found:
        known = ", ".join(bot.slug for bot in gateway.bots)
        fail(f"there is no bot {slug!r}; configured bots: {known}", 2)
    return found


def for_each_bot(gateway: Gateway, slug: str | None, one: Any) -> None:
    """Run ``one`` for each chosen bot; exits with 1 if Telegram refused any of the calls."""
    chosen = select_bots(gateway, slug)

    async def run_all() -> bool:
        succeeded = True
        for bot in chosen:
            try:
                await one(bot)
            except (ApiError, NoResponse) as error:
                typer.echo(f"{bot.slug}: {gateway.mask(str(error))}", err=True)
                succeeded = False
        await gateway.api.close()
        return succeeded

    if not run(run_all()):
        raise typer.Exit(1)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; exits with 1 and the text of an error of forge_jobs."""
    try:
        return asyncio.run(work)
    except ForgeError as error:
        fail(str(error))


def fail(text: str, code: int = 1) -> NoReturn:
    """Print an error and exit."""
    typer.echo(text, err=True)
    raise typer.Exit(code)
