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
MAX_PROCESSES: Final = 256

HELP: Final = {
    "app": "Where the Forge object is: pkg.module:name.",
    "queues": "Queues to serve, with slots for new ones: mail:20,video:2. "
    "Default: FORGE_QUEUES, else what app and forge.toml declare, else those of the app's tasks.",
    "processes": "Worker processes.",
    "health_port": "Serve /healthz and /readyz on loopback; one port per process, from this one.",
    "log_format": "text or json.",
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
    parser.add_argument("--log-format", default=DEFAULT_LOG_FORMAT)
    parser.add_argument("--grace", default=DEFAULT_GRACE)
    parser.add_argument("--lease", default=DEFAULT_LEASE)
    parser.add_argument("--url")
    given = parser.parse_args(list(arguments))
    try:
        return start(**vars(given))
    except ForgeError as error:
        print_error(str(error), code=error.code, as_json=False)
        return exit_code(error)


def start(
    *,
    app: str,
    queues: str | None = None,
    processes: int = 1,
    health_port: int | None = None,
    log_format: str = DEFAULT_LOG_FORMAT,
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
    grace_s = seconds(_span(grace), field="--grace")
    lease_s = seconds(_span(lease), field="--lease")
    if lease_s < 1:
        raise BadOption(
            "--lease must be at least 1s: heartbeats may be that late on a busy machine"
        )
    child_args = [_app_path(app), "--log-format", log_format]
    child_args += ["--grace", f"{grace_s}", "--lease", f"{lease_s}"]
    if queues is not None:
        child_args += ["--queues", _queue_list(queues)]
    if health_port is not None:
        child_args += ["--health-port", str(health_port)]
    if url is not None:
        # Not as an argument: every user of the machine can read those, and it may hold a password.
        os.environ["FORGE_URL"] = url
    configure(format=log_format)
    return run_parent(child_args, processes=processes, grace_s=grace_s, lease_s=lease_s)


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
