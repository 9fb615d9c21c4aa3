"""``forge worker``: checks the arguments and runs the parent of worker processes.

Imports the standard library and modules that use nothing else: the parent runs for as long as the
machine does and should stay small.
"""

import argparse
import os
from collections.abc import Sequence
from typing import Final, NoReturn

from forge_jobs.core.errors import BadOption, ForgeError
from forge_jobs.core.instant import seconds
from forge_jobs.core.names import queue_name
from forge_jobs.kit.log import configure

from .exit_codes import REFUSED, exit_code, print_error
from .worker_parent import run_parent

DEFAULT_GRACE: Final = "20s"
DEFAULT_LEASE: Final = "15s"
DEFAULT_LOG_FORMAT: Final = "text"
DEFAULT_LOG_LEVEL: Final = "info"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
MAX_PROCESSES: Final = 256

HELP: Final = {
    "app": "Where the Forge object is: pkg.module:name, from the working folder.",
    "queues": "Queues to serve, with slots for new ones: mail:20,video:2. "
    "Default: FORGE_QUEUES, else what app and forge.toml declare, else those of the app's tasks.",
    "processes": "Worker processes.",
    "health_port": "Serve /healthz, /readyz and /metrics; one port per process, from this one.",
    "health_host": "Where --health-port listens: 0.0.0.0 for probes of other machines. "
    "Default: FORGE_HEALTH_HOST, else 127.0.0.1.",
    "log_format": "text or json.",
    "log_level": "debug, info, warning or error, also for the application's own log records. "
    "Default: FORGE_LOG_LEVEL, else info.",
    "log_jobs": "Log the start and end of every job. Default: FORGE_LOG_JOBS.",
    "grace": "How long running jobs may continue after a stop.",
    "lease": "A worker without a heartbeat for this long counts as dead.",
    "url": "Store address, if the app itself sets none.",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print_error(f"{message}. See `forge worker --help`.", code="usage", as_json=False)
        self.exit(REFUSED)


def worker(arguments: Sequence[str]) -> int:
    """Run workers for this command line; the exit code."""
    parser = _Parser(prog="forge worker", add_help=False, allow_abbrev=False)
    parser.add_argument("app", metavar="APP")
    parser.add_argument("--queues")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--health-port", type=int)
    parser.add_argument("--health-host")
    parser.add_argument("--log-format", default=DEFAULT_LOG_FORMAT)
    parser.add_argument("--log-level")
    parser.add_argument("--log-jobs", action="store_true")
    parser.add_argument("--grace", default=DEFAULT_GRACE)
    parser.add_argument("--lease", default=DEFAULT_LEASE)
    parser.add_argument("--url")
    given = parser.parse_args(list(arguments))
    try:
        return start(**vars(given))
    except ForgeError as error:
        print_error(str(error), code=error.code, as_json=False, explained=True)
        return exit_code(error)


def start(
    *,
    app: str,
    queues: str | None = None,
    processes: int = 1,
    health_port: int | None = None,
    health_host: str | None = None,
    log_format: str = DEFAULT_LOG_FORMAT,
    log_level: str | None = None,
    log_jobs: bool = False,
    grace: str = DEFAULT_GRACE,
    lease: str = DEFAULT_LEASE,
    url: str | None = None,
) -> int:
    """Check what can be checked without the application, then run the parent; the exit code."""
    if not 1 <= processes <= MAX_PROCESSES:
        raise BadOption(f"--processes {processes} must lie between 1 and {MAX_PROCESSES}")
    if health_port is not None and not 0 < health_port < 65_536:
        raise BadOption(f"--health-port {health_port} is no port: use 1 to 65535")
    if log_format not in ("text", "json"):
        raise BadOption(f"--log-format {log_format!r}: use text or json")
    level = _log_level(log_level)
    grace_s = seconds(_span(grace), field="--grace")
    lease_s = seconds(_span(lease), field="--lease")
    if lease_s < 1:
        raise BadOption(
            "--lease must be at least 1s: heartbeats may be that late on a busy machine"
        )
    child_args = [_app_path(app), "--log-format", log_format, "--log-level", level]
    child_args += ["--log-jobs"] if log_jobs else []
    child_args += ["--grace", f"{grace_s}", "--lease", f"{lease_s}"]
    if queues is not None:
        child_args += ["--queues", _queue_list(queues)]
    if health_port is not None:
        child_args += ["--health-port", str(health_port)]
    if health_host is not None:
        if health_port is None:
            raise BadOption("--health-host needs --health-port: name the port to listen on")
        child_args += ["--health-host", health_host]
    if url is not None:
        # Not as an argument: every user of the machine can read those, and it may hold a password.
        os.environ["FORGE_URL"] = url
    configure(format=log_format, level=level)
    return run_parent(child_args, processes=processes, grace_s=grace_s, lease_s=lease_s)


def _log_level(given: str | None) -> str:
    level = given or os.environ.get("FORGE_LOG_LEVEL", "").strip() or DEFAULT_LOG_LEVEL
    if level.lower() not in LOG_LEVELS:
        name = "FORGE_LOG_LEVEL" if given is None else "--log-level"
        raise BadOption(f"{name} {level!r}: use {', '.join(LOG_LEVELS[:-1])} or {LOG_LEVELS[-1]}")
    return level.lower()


def _app_path(text: str) -> str:
    module, colon, name = text.partition(":")
    if not module or (colon and not name) or module.endswith(".py"):
        raise BadOption(f"APP {text!r}: write pkg.module:object, for example jobs:forge")
    return text


def _queue_list(text: str) -> str:
    for part in (part.strip() for part in text.split(",")):
        name, colon, slots = part.partition(":")
        queue_name(name)
        if colon and not (slots.isascii() and slots.isdigit()):
            raise BadOption(f"--queues {part!r}: write name or name:slots, for example mail:20")
    return text


def _span(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
