"""``forge web``: serves Mission Control; ``password`` and ``token`` create credentials."""

import asyncio
import signal
from types import ModuleType
from typing import Annotated

import typer

from . import terminal
from .exit_codes import Stop
from .options import Url

app = typer.Typer(no_args_is_help=False, invoke_without_command=True, rich_markup_mode="rich")


@app.callback()
def web(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes any free port.")] = 8787,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Accepted host name; repeatable."),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="No route can change anything.")
    ] = False,
    url: Url = None,
) -> None:
    """Serve Mission Control for the browser.

    Serves this machine only, unless FORGE_WEB_PASSWORD or FORGE_WEB_TOKENS is set.

    \b
    Example:
      forge web
      FORGE_WEB_PASSWORD=… forge web --host 0.0.0.0 --allow-host jobs.example.com
    """
    if context.invoked_subcommand is not None:
        return
    standalone = import_standalone()
    from forge_jobs.web.access.credentials import from_environment

    standalone.check_host(host, from_environment())
    standalone.check_page_files()
    from forge_jobs.app import Forge

    forge = Forge(url)
    # Fails at once for a wrong address or forge.toml; an unreachable server may still come back.
    _ = forge.store
    listener = standalone.listen(host, port)

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        hosts = tuple(allow_host or ())
        async with standalone.serve(forge, listener, read_only=read_only, hosts=hosts) as task:
            terminal.console().print(
                f"Mission Control: {standalone.address(listener)}", soft_wrap=True
            )
            waiting = asyncio.create_task(stop.wait())
            await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        await forge.aclose()

    asyncio.run(serve())


@app.command()
def password() -> None:
    """Hash a password for FORGE_WEB_PASSWORD. Prompts for it and never shows it.

    \b
    Example:
      export FORGE_WEB_PASSWORD="$(forge web password)"
    """
    import_standalone()
    from forge_jobs.kit.entropy import SECRET_ENTROPY
    from forge_jobs.web.access.credentials import MIN_PASSWORD_LENGTH
    from forge_jobs.web.access.hashes import hash_password

    given = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if len(given) < MIN_PASSWORD_LENGTH:
        raise Stop(
            f"the password is shorter than {MIN_PASSWORD_LENGTH} characters: choose a longer one, "
            "for example four random words",
            code="bad_password",
        )
    typer.echo(hash_password(given, SECRET_ENTROPY))


@app.command()
def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The owner's name in the audit.")],
    role: Annotated[str, typer.Option(help="viewer, operator or admin.")] = "viewer",
) -> None:
    """Create a bearer token. It is shown once; FORGE_WEB_TOKENS holds only its hash.

    \b
    Example:
      forge web token grafana --role viewer
    """
    import_standalone()
    from forge_jobs.kit.entropy import SECRET_ENTROPY
    from forge_jobs.web.access.hashes import hash_token, new_token
    from forge_jobs.web.access.identity import parse_role

    if not name.isprintable() or not name or set(name) & set(":,"):
        raise Stop(f"the name {name!r} must not hold commas or colons", code="bad_name")
    word = parse_role(role, source="--role").word
    secret = new_token(SECRET_ENTROPY)
    typer.echo(f"token            {secret}")
    typer.echo(f"FORGE_WEB_TOKENS {name}:{word}:{hash_token(secret)}")
    typer.echo(
        "Keep the token now: it is not shown again. Entries are joined with commas.", err=True
    )


def import_standalone() -> ModuleType:
    """Import the server of Mission Control. Raises Stop with the extra to install."""
    try:
        from forge_jobs.web import standalone
    except ModuleNotFoundError as error:
        raise Stop(
            f"Mission Control needs the extra [web] ({error.name} is missing): "
            "pip install 'forge-jobs[web]'",
            code="needs_web",
        ) from error
    return standalone
