"""``forge bench``: runs the benchmarks of a checkout."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import typer

import forge_jobs

from .exit_codes import Stop

CONTEXT_SETTINGS: Final[dict[str, Any]] = {"ignore_unknown_options": True, "allow_extra_args": True}


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
