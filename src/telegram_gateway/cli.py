"""The command ``telegram-gateway``."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from forge_jobs import SECRET_ENTROPY, ForgeError

from .bot_api import ApiError, Unreachable
from .config import Bot, Settings, load
from .gateway import Gateway
from .masking import log_to
from .storage import gateway_store_at

T = TypeVar("T")
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
webhooks = typer.Typer(no_args_is_help=True, help="Set, delete or show the webhooks of bots.")
secrets = typer.Typer(no_args_is_help=True, help="Secrets for webhooks.")
app.add_typer(webhooks, name="webhook")
app.add_typer(secrets, name="secret")
BotOption = Annotated[str | None, typer.Option("--bot", help="One bot, by slug; else all.")]
_BACKLOG = 100
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"


@app.command()
def serve() -> None:
    """Receive updates, run handlers, send answers."""
    from .serving import serve as run_server

    gateway = _gateway()
    settings = gateway.settings
    log_to(None, gateway.mask, level=settings.log_level, as_json=settings.log_format == "json")
    _run(run_server(gateway))


@app.command()
def poll() -> None:
    """Fetch updates of all bots instead of waiting for webhooks; for machines behind NAT."""
    from .serving import fetch

    gateway = _gateway()
    settings = gateway.settings
    log_to(None, gateway.mask, level=settings.log_level, as_json=settings.log_format == "json")
    _run(fetch(gateway))


@app.command()
def check() -> None:
    """Read the configuration and print what would run; no secret is shown."""
    settings, bots, warnings = _loaded()
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    database = "none: only handlers at the door" if settings.database_url is None else "set"
    typer.echo(f"listen    {settings.host}:{settings.port}\ndatabase  {database}")
    for bot in bots:
        way = f"queue, {bot.ordering}" if bot.in_queue else "at the door"
        gate = "session required" if bot.require_auth else "open"
        typer.echo(f"bot       {bot.slug}: {bot.handler}, {way}, {gate}, {bot.mode}")


@secrets.command("new")
def secret_new() -> None:
    """A fresh webhook secret."""
    typer.echo("".join(_ALPHABET[SECRET_ENTROPY.bits(6)] for _ in range(43)))


@webhooks.command("set")
def webhook_set(
    bot: BotOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be set.")] = False,
) -> None:
    """Point Telegram at PUBLIC_URL, always with secret, kinds and connections; then read back."""
    gateway = _gateway()
    base = gateway.settings.public_url
    if base is None:
        _fail("PUBLIC_URL is not set: export the address that Telegram reaches, https://…")

    async def one(found: Bot) -> None:
        url = f"{base}/bot/{found.slug}"
        typer.echo(f"{found.slug}: {url} {', '.join(found.allowed_updates)}")
        if dry_run:
            return
        wanted = {
            "url": url,
            "secret_token": found.secrets[0].decode(),
            "allowed_updates": list(found.allowed_updates),
            "max_connections": found.max_connections,
        }
        try:
            await gateway.api.call(found, "setWebhook", wanted)
        except ApiError as error:
            # Telegram takes one such call a second.
            if error.code != 429:
                raise
            await gateway.clock.sleep(error.retry_after_s or 1.0)
            await gateway.api.call(found, "setWebhook", wanted)
        info: Any = await gateway.api.call(found, "getWebhookInfo", {})
        if info.get("url") != url:
            _fail(f"{found.slug}: Telegram has another address than the one just set")

    _each(gateway, bot, one)


@webhooks.command("delete")
def webhook_delete(bot: BotOption = None) -> None:
    """Remove webhooks; updates that wait at Telegram are kept."""
    gateway = _gateway()

    async def one(found: Bot) -> None:
        await gateway.api.call(found, "deleteWebhook", {"drop_pending_updates": False})
        typer.echo(f"{found.slug}: deleted")

    _each(gateway, bot, one)


@webhooks.command("info")
def webhook_info(bot: BotOption = None) -> None:
    """What Telegram knows about the webhooks, with warnings."""
    gateway = _gateway()

    async def one(found: Bot) -> None:
        info: Any = await gateway.api.call(found, "getWebhookInfo", {})
        waiting = info.get("pending_update_count", 0)
        typer.echo(f"{found.slug}: {info.get('url') or 'no webhook'}, {waiting} waiting")
        base = gateway.settings.public_url
        if base is not None and info.get("url") != f"{base}/bot/{found.slug}":
            typer.echo(f"  warning: it is not {base}/bot/{found.slug}")
        if waiting > _BACKLOG:
            typer.echo(f"  warning: more than {_BACKLOG} updates wait at Telegram")
        if info.get("last_error_message"):
            typer.echo(f"  warning: last error: {gateway.mask(str(info['last_error_message']))}")
        kinds = info.get("allowed_updates")
        if kinds is not None and set(kinds) != set(found.allowed_updates):
            typer.echo(f"  warning: other update kinds are set: {', '.join(kinds)}")

    _each(gateway, bot, one)


@app.command()
def send(slug: str, chat_id: str, text: str) -> None:
    """Send one text to a chat, now."""
    gateway = _gateway()

    async def one(found: Bot) -> None:
        await gateway.api.call(found, "sendMessage", {"chat_id": chat_id, "text": text})
        typer.echo("sent")

    _each(gateway, slug, one)


@app.command()
def simulate(
    slug: str,
    file: Annotated[Path, typer.Argument(help="An update as JSON.")],
    url: Annotated[str | None, typer.Option(help="Of the gateway; else LISTEN.")] = None,
) -> None:
    """Post one update to a running gateway, with the right secret."""
    import httpx2

    gateway = _gateway()
    bot = _chosen(gateway, slug)[0]
    base = url or f"http://{gateway.settings.host}:{gateway.settings.port}"
    headers = {
        "content-type": "application/json",
        "x-telegram-bot-api-secret-token": bot.secrets[0].decode(),
    }
    try:
        body = file.read_bytes()
        answer = httpx2.post(f"{base}/bot/{slug}", content=body, headers=headers, trust_env=False)
    except (OSError, httpx2.HTTPError) as error:
        _fail(f"{slug}: {type(error).__name__}: is the gateway running at {base}?")
    typer.echo(f"{answer.status_code} {answer.text.strip()}".strip())
    raise typer.Exit(0 if answer.is_success else 1)


_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command(context_settings=_PASSED_ON, add_help_option=False)
def jobs(context: typer.Context) -> None:
    """Jobs of the gateway, on DATABASE_URL: `forge jobs`, with `stats`, `discard` (delete) and
    `forget --user ID`, which deletes the jobs and the session of a user."""
    settings, _, _ = _loaded()
    if settings.database_url is None:
        _fail("DATABASE_URL is not set: there are no jobs")
    # The address may hold a password, so it goes by the environment.
    environment = {**os.environ, "FORGE_URL": settings.database_url}
    for words in _forge_commands(context.args):
        command = [sys.executable, "-m", "forge_jobs", *words]
        code = subprocess.run(command, env=environment, check=False).returncode
        if code:
            raise typer.Exit(code)
    if context.args[:1] == ["forget"]:
        _run(_end_session(settings.database_url, int(context.args[2])))


def _forge_commands(words: list[str]) -> list[list[str]]:
    """What `forge` is asked for."""
    match words:
        case ["stats", *more]:
            return [["stats", *more]]
        case ["discard", *more]:
            return [["jobs", "delete", *more]]
        case ["forget", "--user", user] if user.isascii() and user.isdigit():
            # In a private chat the chat has the number of the user.
            tags = (f"user:{user}", f"chat:{user}")
            return [["jobs", "delete", "--tag", tag, "--yes"] for tag in tags]
        case ["forget", *_]:
            _fail("write: jobs forget --user ID, the number of the user", 2)
        case _:
            return [["jobs", *words]]


async def _end_session(url: str, user_id: int) -> None:
    storage = gateway_store_at(url)
    await storage.open()
    try:
        await storage.forget_user(user_id)
    finally:
        await storage.close()


@app.command("fake-telegram")
def fake_telegram(
    port: Annotated[int, typer.Option(help="0 means any free one.")] = 8081,
    host: Annotated[str, typer.Option(help="Keep it on this machine.")] = "127.0.0.1",
) -> None:
    """A fake Telegram with the real rules of delivery, to try bots against."""
    from .demo.commands import run_fake

    _listened(run_fake(host, port, typer.echo), port)


@app.command()
def demo(
    port: Annotated[int, typer.Option(help="Of the chat page; 0 means any free one.")] = 8090,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the database here; else it goes with the demo.")
    ] = None,
) -> None:
    """The gateway without Telegram: two bots and a chat page, no token and no network."""
    from .demo.commands import run_demo

    _listened(run_demo(port, folder, typer.echo), port)


def _listened(work: Coroutine[Any, Any, None], port: int) -> None:
    try:
        _run(work)
    except OSError as error:
        _fail(f"port {port}: {error.strerror or error}: choose another one with --port")


def _loaded() -> tuple[Settings, list[Bot], list[str]]:
    try:
        return load(os.environ)
    except ForgeError as error:
        _fail(str(error), 2)


def _gateway() -> Gateway:
    settings, bots, warnings = _loaded()
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    try:
        return Gateway(settings, bots)
    except ForgeError as error:
        _fail(str(error), 2)


def _chosen(gateway: Gateway, slug: str | None) -> list[Bot]:
    found = [bot for bot in gateway.bots if slug is None or bot.slug == slug]
    if not found:
        known = ", ".join(bot.slug for bot in gateway.bots)
        _fail(f"there is no bot {slug!r}; there are {known}", 2)
    return found


def _each(gateway: Gateway, slug: str | None, one: Any) -> None:
    chosen = _chosen(gateway, slug)

    async def run() -> bool:
        good = True
        for bot in chosen:
            try:
                await one(bot)
            except (ApiError, Unreachable) as error:
                typer.echo(f"{bot.slug}: {gateway.mask(str(error))}", err=True)
                good = False
        await gateway.api.close()
        return good

    if not _run(run()):
        raise typer.Exit(1)


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(work)
    except ForgeError as error:
        _fail(str(error))


def _fail(text: str, code: int = 1) -> NoReturn:
    typer.echo(text, err=True)
    raise typer.Exit(code)


def main() -> None:
    """The console script."""
    app()
