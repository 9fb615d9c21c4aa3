"""The tree of all commands, and the mapping from errors to exit codes.

A command imports its own modules only: all of them take 40 ms of the 130 of `forge jobs list`.
"""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from forge_jobs.core.errors import ForgeError

from .exit_codes import FAILED, INTERRUPTED, OK, REFUSED, Stop, exit_code, print_error
from .worker import DEFAULT_GRACE, DEFAULT_LEASE, DEFAULT_LOG_FORMAT, HELP, start

RUN, OPERATE, STORE = "Run", "Inspect and operate", "Store"


def forge(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Durable background jobs for Python.

    \b
    Example:
      forge worker pkg.jobs:forge         run jobs
      forge jobs list --status dead       list dead jobs
      forge demo                          run a demo, with forge-jobs\\[web]
    """
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"forge-jobs {installed('forge-jobs')}")
        raise typer.Exit


def worker(
    app: Annotated[str, typer.Argument(metavar="APP", help=HELP["app"])],
    queues: Annotated[str | None, typer.Option(metavar="LIST", help=HELP["queues"])] = None,
    processes: Annotated[int, typer.Option(metavar="N", help=HELP["processes"])] = 1,
    health_port: Annotated[int | None, typer.Option(metavar="P", help=HELP["health_port"])] = None,
    health_host: Annotated[str | None, typer.Option(metavar="H", help=HELP["health_host"])] = None,
    log_format: Annotated[
        str, typer.Option(metavar="FORMAT", help=HELP["log_format"])
    ] = DEFAULT_LOG_FORMAT,
    log_level: Annotated[str | None, typer.Option(metavar="LEVEL", help=HELP["log_level"])] = None,
    log_jobs: Annotated[bool, typer.Option("--log-jobs", help=HELP["log_jobs"])] = False,
    grace: Annotated[str, typer.Option(metavar="SPAN", help=HELP["grace"])] = DEFAULT_GRACE,
    lease: Annotated[str, typer.Option(metavar="SPAN", help=HELP["lease"])] = DEFAULT_LEASE,
    url: Annotated[str | None, typer.Option(metavar="URL", help=HELP["url"])] = None,
) -> None:
    """Run jobs until a signal stops it.

    SIGTERM or Ctrl-C drains: running jobs get the grace time, other claimed jobs are released.
    A second signal stops at once.

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
            health_host=health_host,
            log_format=log_format,
            log_level=log_level,
            log_jobs=log_jobs,
            grace=grace,
            lease=lease,
            url=url,
        )
    )


# Name, its place in the help, and its module and function; without a function the module's ``app``.
COMMANDS: Final = (
    ("worker", RUN, "commands", "worker"),
    ("dev", RUN, "dev", "dev"),
    ("demo", RUN, "demo", "demo"),
    ("web", RUN, "web", ""),
    ("enqueue", RUN, "enqueue", "enqueue"),
    ("send", RUN, "events", "send"),
    ("jobs", OPERATE, "jobs", ""),
    ("events", OPERATE, "events", ""),
    ("errors", OPERATE, "errors", ""),
    ("queues", OPERATE, "queues", ""),
    ("cron", OPERATE, "cron", ""),
    ("limits", OPERATE, "limits", ""),
    ("tasks", OPERATE, "tasks", ""),
    ("tags", OPERATE, "tags", ""),
    ("alerts", OPERATE, "alerts", ""),
    ("views", OPERATE, "views", ""),
    ("workers", OPERATE, "workers", ""),
    ("audit", OPERATE, "audit", "audit"),
    ("stats", OPERATE, "health", "stats"),
    ("doctor", STORE, "health", "doctor"),
    ("db", STORE, "database", ""),
    ("bench", STORE, "bench", "bench"),
    ("help", STORE, "error_help", "explain"),
)


def tree(first: str | None = None) -> typer.Typer:
    """The commands; only the one called ``first``, if there is one."""
    app = typer.Typer(
        name="forge",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback(invoke_without_command=True)(forge)
    chosen = [command for command in COMMANDS if command[0] == first]
    for name, panel, module_name, function in chosen or COMMANDS:
        module = import_module(f".{module_name}", __package__)
        if function:
            settings = getattr(module, "CONTEXT_SETTINGS", None)
            command: Callable[..., Any] = getattr(module, function)
            app.command(name, rich_help_panel=panel, context_settings=settings)(command)
        else:
            app.add_typer(module.app, name=name, rich_help_panel=panel)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    as_json = "--json" in arguments
    try:
        app = tree(arguments[0] if arguments else None)
        code = app(args=list(arguments), prog_name="forge", standalone_mode=False)
    except ForgeError as error:
        print_error(str(error), code=error.code, as_json=as_json, explained=True)
        return exit_code(error)
    except Stop as stop:
        print_error(str(stop), code=stop.code, as_json=as_json)
        return stop.exit_code
    except typer.Abort:
        print_error("nothing was done", code="aborted", as_json=as_json)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe. Without this the interpreter prints an error at exit.
        sys.stderr.close()
        return FAILED
    except Exception as error:
        message = _usage_error(error)
        if message is None:
            raise
        if message:
            print_error(message, code="usage", as_json=as_json)
        return REFUSED
    return code if isinstance(code, int) else OK


def _usage_error(error: Exception) -> str | None:
    """The message of a usage error; empty if the help was printed instead; None for other errors.

    The error class is private to typer, so the error is recognised by its attributes.
    """
    describe = getattr(error, "format_message", None)
    if describe is None or getattr(error, "exit_code", None) != REFUSED:
        return None
    text = describe()
    command = getattr(getattr(error, "ctx", None), "command_path", "forge")
    return f"{text} See `{command} --help`." if text else ""
