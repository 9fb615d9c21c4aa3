"""The entry point: starts ``forge worker`` without heavy imports, all else through ``commands``."""

import sys
from collections.abc import Sequence

_HELP = ("--help", "-h")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``forge`` and exit: 0 ok, 1 failed, 2 usage or refused."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["worker"] and not any(word in _HELP for word in given):
        from .worker import worker

        sys.exit(worker(given[1:]))

    from .commands import run

    sys.exit(run(given))
