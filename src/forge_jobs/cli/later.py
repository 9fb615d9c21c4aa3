"""Commands whose feature is still to come, and the benchmarks of a checkout."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import typer

import forge_jobs
from forge_jobs.core.errors import NotYet

from .failing import Stop

ANYTHING: Final[dict[str, Any]] = {"ignore_unknown_options": True, "allow_extra_args": True}

_WHAT: Final = {
    "audit": ("Who did what.", "the audit comes with the web panel; actions are logged until then"),
}


def _not_yet(name: str) -> Callable[..., None]:
    says, sentence = _WHAT[name]

    def command(context: typer.Context) -> None:
        raise NotYet(f"`forge {name}` is not built yet: {sentence}")

    command.__doc__ = f"{says} Not yet: {sentence}.\n\n\b\nExample:\n  forge {name}"
    return command


COMMANDS: Final = {name: _not_yet(name) for name in _WHAT}


def bench(context: typer.Context) -> None:
    """Measure throughput and latency; only in a checkout of the project.

    \b
    Example:
      forge bench --help
    """
    root = Path(forge_jobs.__file__).resolve().parents[2]
    if not (root / "benchmarks" / "__main__.py").is_file():
        raise Stop(
            "`forge bench` needs a checkout of the project: "
            "the benchmarks are not part of the installed package",
            code="needs_checkout",
        )
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *context.args], cwd=root, check=False
    )
    raise typer.Exit(done.returncode)
