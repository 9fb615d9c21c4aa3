"""The command ``telegram-gateway``."""

import os
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from forge_jobs import SECRET_ENTROPY

from .bot_api import ApiError
from .cli_quarantine import quarantine
from .cli_session import BotOption, fail, for_each_bot, load_config, make_gateway, run, select_bots
from .config import Bot, Mode
from .gateway import Gateway
from .masking import configure_logging
from .service_check import check_services
from .storage import gateway_store_at
from .webhook import PREFIX

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
webhooks = typer.Typer(no_args_is_help=True, help="Set, delete or show the webhooks of bots.")
secrets = typer.Typer(no_args_is_help=True, help="Secrets for webhooks.")
app.add_typer(webhooks, name="webhook")
app.add_typer(secrets, name="secret")
app.add_typer(quarantine, name="quarantine")
_BACKLOG = 100
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"


@app.command()
def serve() -> None:
    """Receive webhooks, run handlers, send replies.

    \b
    Example:
      LOG_FORMAT=json telegram-gateway serve
    """
    from .serving import serve as run_server

    gateway = make_gateway()
    _configure_logging(gateway)
    run(run_server(gateway))


@app.command()
def poll() -> None:
    """Fetch updates of all bots with getUpdates instead of webhooks, for machines behind NAT.

    \b
    Example:
      telegram-gateway poll
    """
    from .serving import run_polling

    gateway = make_gateway()
    _configure_logging(gateway)
    run(run_polling(gateway))


@app.command()
def check() -> None:
    """Check configuration, database and services, and print what would run, without secrets.

    \b
    Example:
      telegram-gateway check
    """
    gateway = make_gateway()
    settings = gateway.settings
    run(_check_reachable(gateway))
    database = "none: inline handlers only" if settings.database_url is None else "usable"
    typer.echo(f"listen    {settings.host}:{settings.port}\ndatabase  {database}")
    for bot in gateway.bots:
        path = f"queue, {bot.ordering}" if bot.in_queue else "inline"
        access = "session required" if bot.require_auth else "open"
        typer.echo(f"bot       {bot.slug}: {bot.handler}, {path}, {access}, {bot.mode}")
        if bot.mode is Mode.WEBHOOK:
            typer.echo(f"webhook   {settings.public_url or '(PUBLIC_URL)'}{PREFIX}{bot.slug}")


async def _check_reachable(gateway: Gateway) -> None:
    """Exit with 1 if the database cannot be used; print a warning for each service."""
    try:
        await gateway.storage.probe()
    except Exception as error:
        reason = gateway.mask(str(error) or type(error).__name__)
        fail(f"DATABASE_URL: the database cannot be used: {reason}")
    finally:
        await gateway.close()
    for warning in await check_services(gateway.bots):
        typer.echo(f"warning: {warning}", err=True)


@secrets.command("new")
def secret_new() -> None:
    """Print a new webhook secret.

    \b
    Example:
      export BOT_SHOP_SECRET=$(telegram-gateway secret new)
    """
    typer.echo("".join(_ALPHABET[SECRET_ENTROPY.bits(6)] for _ in range(43)))


@webhooks.command("set")
def webhook_set(
    bot: BotOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be set.")
    ] = False,
) -> None:
    """Set each webhook to PUBLIC_URL with its secret, update kinds and connections, and verify.

    \b
    Example:
      PUBLIC_URL=https://tg.example.org telegram-gateway webhook set --bot shop
    """
    gateway = make_gateway()
    base = gateway.settings.public_url
    if base is None:
        fail("PUBLIC_URL is not set: export the address that Telegram reaches, https://…")

    async def one(found: Bot) -> None:
        url = f"{base}{PREFIX}{found.slug}"
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
            # Telegram accepts one setWebhook call a second.
            if error.code != 429:
                raise
            await gateway.clock.sleep(error.retry_after_s or 1.0)
            await gateway.api.call(found, "setWebhook", wanted)
        info: Any = await gateway.api.call(found, "getWebhookInfo", {})
        if info.get("url") != url:
            fail(f"{found.slug}: Telegram reports another URL than the one just set")

    for_each_bot(gateway, bot, one)


@webhooks.command("delete")
def webhook_delete(bot: BotOption = None) -> None:
    """Remove webhooks; Telegram keeps its pending updates.

    \b
    Example:
      telegram-gateway webhook delete --bot shop
    """
    gateway = make_gateway()

    async def one(found: Bot) -> None:
        await gateway.api.call(found, "deleteWebhook", {"drop_pending_updates": False})
        typer.echo(f"{found.slug}: deleted")

    for_each_bot(gateway, bot, one)


@webhooks.command("info")
def webhook_info(bot: BotOption = None) -> None:
    """Show Telegram's state of the webhooks, with warnings.

    \b
    Example:
      telegram-gateway webhook info
    """
    gateway = make_gateway()

    async def one(found: Bot) -> None:
        info: Any = await gateway.api.call(found, "getWebhookInfo", {})
        waiting = info.get("pending_update_count", 0)
        typer.echo(f"{found.slug}: {info.get('url') or 'no webhook'}, {waiting} waiting")
        base = gateway.settings.public_url
        if base is not None and info.get("url") != f"{base}/bot/{found.slug}":
            typer.echo(f"  warning: it is not {base}/bot/{found.slug}")
        if waiting > _BACKLOG:
            typer.echo(f"  warning: more than {_BACKLOG} updates are pending at Telegram")
        if info.get("last_error_message"):
            typer.echo(f"  warning: last error: {gateway.mask(str(info['last_error_message']))}")
        kinds = info.get("allowed_updates")
        if kinds is not None and set(kinds) != set(found.allowed_updates):
            typer.echo(f"  warning: other update kinds are set: {', '.join(kinds)}")

    for_each_bot(gateway, bot, one)


@app.command()
def send(slug: str, chat_id: str, text: str) -> None:
    """Send one text message to a chat immediately.

    \b
    Example:
      telegram-gateway send shop 12345 "We are back."
    """
    gateway = make_gateway()

    async def one(found: Bot) -> None:
        await gateway.api.call(found, "sendMessage", {"chat_id": chat_id, "text": text})
        typer.echo("sent")

    for_each_bot(gateway, slug, one)


@app.command()
def simulate(
    slug: str,
    file: Annotated[Path, typer.Argument(help="An update as JSON.")],
    url: Annotated[str | None, typer.Option(help="URL of the gateway; default: LISTEN.")] = None,
) -> None:
    """Post one update to a running gateway, with the bot's secret.

    \b
    Example:
      telegram-gateway simulate shop update.json
    """
    import httpx2

    gateway = make_gateway()
    bot = select_bots(gateway, slug)[0]
    base = url or f"http://{gateway.settings.host}:{gateway.settings.port}"
    headers = {
        "content-type": "application/json",
        "x-telegram-bot-api-secret-token": bot.secrets[0].decode(),
    }
    try:
        body = file.read_bytes()
        answer = httpx2.post(f"{base}/bot/{slug}", content=body, headers=headers, trust_env=False)
    except (OSError, httpx2.HTTPError) as error:
        fail(f"{slug}: {type(error).__name__}: is the gateway running at {base}?")
    typer.echo(f"{answer.status_code} {answer.text.strip()}".strip())
    raise typer.Exit(0 if answer.is_success else 1)


_PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def jobs(context: typer.Context) -> None:
    """Run `forge jobs` on DATABASE_URL, with `stats`, `discard` (delete) and `forget --user ID`,
    which deletes the jobs and the session of a user."""
    settings, _, _ = load_config()
    if settings.database_url is None:
        fail("DATABASE_URL is not set: there are no jobs")
    # The URL may contain a password, so it is passed in the environment.
    environment = {**os.environ, "FORGE_URL": settings.database_url}
    for words in _forge_commands(context.args):
        command = [sys.executable, "-m", "forge_jobs", *words]
        code = subprocess.run(command, env=environment, check=False).returncode
        if code:
            raise typer.Exit(code)
    if context.args[:1] == ["forget"]:
        run(_end_session(settings.database_url, int(context.args[2])))


def _forge_commands(words: list[str]) -> list[list[str]]:
    """The `forge` commands to run."""
    match words:
        case ["stats", *more]:
            return [["stats", *more]]
        case ["discard", *more]:
            return [["jobs", "delete", *more]]
        case ["forget", "--user", user] if user.isascii() and user.isdigit():
            # The id of a private chat is the id of its user.
            tags = (f"user:{user}", f"chat:{user}")
            return [["jobs", "delete", "--tag", tag, "--yes"] for tag in tags]
        case ["forget", *_]:
            fail("use: jobs forget --user ID, with the numeric id of the user", 2)
        case _:
            return [["jobs", *words]]


async def _end_session(url: str, user_id: int) -> None:
    storage = gateway_store_at(url)
    await storage.open()
    try:
        await storage.delete_user(user_id)
    finally:
        await storage.close()


@app.command("fake-telegram")
def fake_telegram(
    port: Annotated[int, typer.Option(help="0 means any free port.")] = 8081,
    host: Annotated[str, typer.Option(help="Anybody who reaches it has full control.")] = (
        "127.0.0.1"
    ),
) -> None:
    """Run a fake Telegram with the real delivery rules, to test bots against.

    \b
    Example:
      telegram-gateway fake-telegram --port 8081
    """
    from .demo.commands import run_fake

    _run_on_port(run_fake(host, port, typer.echo), port)


@app.command()
def demo(
    port: Annotated[int, typer.Option(help="Port of the chat page; 0: any free port.")] = 8090,
    folder: Annotated[
        Path | None, typer.Option(help="Keep the database here; default: deleted at exit.")
    ] = None,
) -> None:
    """Run the gateway without Telegram: two bots and a chat page, no token and no network.

    \b
    Example:
      telegram-gateway demo --folder demo
    """
    from .demo.commands import run_demo

    _run_on_port(run_demo(port, folder, typer.echo), port)


def _run_on_port(work: Coroutine[Any, Any, None], port: int) -> None:
    try:
        run(work)
    except OSError as error:
        fail(f"port {port}: {error.strerror or error}: choose another one with --port")


def _configure_logging(gateway: Gateway) -> None:
    settings = gateway.settings
    configure_logging(
        None,
        gateway.mask,
        level=settings.log_level,
        as_json=settings.log_format == "json",
        reported=gateway.reported,
    )


def main() -> None:
    """The console script."""
    app()
