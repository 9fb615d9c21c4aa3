"""All commands in one tree, and the one place where errors become exit codes."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from forge_jobs.core.errors import ForgeError

from . import (
    audit,
    bench,
    bulk,
    cron,
    database,
    demo,
    dev,
    enqueue,
    health,
    jobs,
    limits,
    queues,
    web,
    workers,
)
from .exit_codes import FAILED, INTERRUPTED, OK, REFUSED, Stop, exit_code, say
from .worker import DEFAULT_GRACE, DEFAULT_LEASE, DEFAULT_LOG_FORMAT, HELP, start

RUN, LOOK, STORE = "Run", "Look and act", "Store"

app = typer.Typer(
    name="forge",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback(invoke_without_command=True)
def forge(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Durable background jobs for Python.

    \b
    Example:
      forge demo                          see it work
      forge worker pkg.jobs:forge         run jobs
      forge jobs list --status dead       see what failed
    """
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"forge-jobs {installed('forge-jobs')}")
        raise typer.Exit


@app.command(rich_help_panel=RUN)
def worker(
    app: Annotated[str, typer.Argument(metavar="APP", help=HELP["app"])],
    queues: Annotated[str | None, typer.Option(metavar="LIST", help=HELP["queues"])] = None,
    processes: Annotated[int, typer.Option(metavar="N", help=HELP["processes"])] = 1,
    health_port: Annotated[int | None, typer.Option(metavar="P", help=HELP["health_port"])] = None,
    log_format: Annotated[
        str, typer.Option(metavar="FORMAT", help=HELP["log_format"])
    ] = DEFAULT_LOG_FORMAT,
    grace: Annotated[str, typer.Option(metavar="SPAN", help=HELP["grace"])] = DEFAULT_GRACE,
    lease: Annotated[str, typer.Option(metavar="SPAN", help=HELP["lease"])] = DEFAULT_LEASE,
    url: Annotated[str | None, typer.Option(metavar="URL", help=HELP["url"])] = None,
) -> None:
    """Run jobs until told to stop.

    SIGTERM or Ctrl-C drains: running jobs get the grace time, the rest is handed back.
    A second one stops at once.

    \b
    Example:
      forge worker pkg.jobs:forge --queues mail:20,video:2 --processes 4
    """
    raise typer.Exit(
        start(
            app=app,
            queues=queues,
            processes=processes,
            health_port=health_port,
            log_format=log_format,
            grace=grace,
            lease=lease,
            url=url,
        )
    )


app.command("dev", rich_help_panel=RUN)(dev.dev)
app.command("demo", rich_help_panel=RUN)(demo.demo)
app.add_typer(web.app, name="web", rich_help_panel=RUN)
app.command("enqueue", rich_help_panel=RUN)(enqueue.enqueue)
app.add_typer(jobs.app, name="jobs", rich_help_panel=LOOK)
app.add_typer(queues.app, name="queues", rich_help_panel=LOOK)
app.add_typer(cron.app, name="cron", rich_help_panel=LOOK)
app.add_typer(limits.app, name="limits", rich_help_panel=LOOK)
app.add_typer(workers.app, name="workers", rich_help_panel=LOOK)
app.command("audit", rich_help_panel=LOOK)(audit.audit)
app.command("stats", rich_help_panel=LOOK)(health.stats)
app.command("doctor", rich_help_panel=STORE)(health.doctor)
app.add_typer(database.app, name="db", rich_help_panel=STORE)
app.command("bench", rich_help_panel=STORE, context_settings=bench.ANYTHING)(bench.bench)
bulk.add_to(jobs.app)


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    as_json = "--json" in arguments
    try:
        left = app(args=list(arguments), prog_name="forge", standalone_mode=False)
    except ForgeError as error:
        say(str(error), code=error.code, as_json=as_json)
        return exit_code(error)
    except Stop as stop:
        say(str(stop), code=stop.code, as_json=as_json)
        return stop.exit_code
    except typer.Abort:
        say("nothing was done", code="aborted", as_json=as_json)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has seen enough; without this the interpreter complains at exit
        sys.stderr.close()
        return FAILED
    except Exception as error:
        message = _usage(error)
        if message is None:
            raise
        if message:
            say(message, code="usage", as_json=as_json)
        return REFUSED
    return left if isinstance(left, int) else OK


def _usage(error: Exception) -> str | None:
    """What is wrong with a command line; empty when the help was printed instead.

    The class of such errors is private to typer, their shape is not.
    """
    describe = getattr(error, "format_message", None)
    if describe is None or getattr(error, "exit_code", None) != REFUSED:
        return None
    text = describe()
    command = getattr(getattr(error, "ctx", None), "command_path", "forge")
    return f"{text} See `{command} --help`." if text else ""
