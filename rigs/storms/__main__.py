"""``python -m rigs.storms``: run the storms and check their results. Exit code 1 if a check failed.

``--only`` and ``--backend`` select storms. A storm is a module of this package with the backends it
supports (``BACKENDS``) and ``storm(backend, arguments) -> bool``, which runs it, prints its
findings and returns whether every check passed.
"""

import argparse
import random
import sys
from importlib import import_module
from typing import Any

from rigs.storms.arguments import StormArguments

# The docstring of each module says what its storm does and checks.
STORMS = {
    "kill": "rigs.storms.kills",
    "restart": "rigs.storms.restarts",
    "failover": "rigs.storms.failovers",
    "join": "rigs.storms.joining",
    "rate": "rigs.storms.rates",
    "pull": "rigs.storms.pulling",
    "commands": "rigs.storms.commands",
    "cron": "rigs.storms.ticking",
    "limits": "rigs.storms.limits",
    "waiting": "rigs.storms.waiting",
    "versions": "rigs.storms.versions",
    "steps": "rigs.storms.stepping",
    "alerts": "rigs.storms.alerting",
    "settings": "rigs.storms.settings",
    "gateway": "rigs.storms.gateway",
}


def main() -> int:
    names, backend, arguments = _parse_arguments()
    failed: list[str] = []
    ran = 0
    for name in names:
        module: Any = import_module(STORMS[name])
        for one in module.BACKENDS:
            if backend in (None, one):
                ran += 1
                if not module.storm(one, arguments):
                    failed.append(f"{name} on {one}")
    if not ran:
        print(f"FAILED: no storm ran: {', '.join(names)} do not use {backend}")
        return 1
    if failed:
        print(f"FAILED: {', '.join(failed)}. Repeat with --seed {arguments.seed}")
        return 1
    print("Every check passed.")
    return 0


def _parse_arguments() -> tuple[list[str], str | None, StormArguments]:
    description = "Run the storms and check their results. Exit code 1 if a check failed."
    parser = argparse.ArgumentParser(prog="python -m rigs.storms", description=description)
    parser.add_argument("--only", metavar="NAMES", help=f"some of: {','.join(STORMS)}")
    parser.add_argument("--backend", choices=("sqlite", "postgres"))
    parser.add_argument("--jobs", type=int, help="jobs, updates or commands, by storm")
    parser.add_argument("--kills", type=int, help="how many processes are killed")
    parser.add_argument("--workers", type=int, help="worker processes")
    parser.add_argument("--producers", type=int, help="producer processes")
    parser.add_argument("--lease", type=float, dest="lease_s", help="process lease in seconds")
    parser.add_argument("--every", type=float, dest="every_s", help="mean seconds between faults")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--quick", action="store_true", help="run the small storms of the tests")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the histories")
    given = vars(parser.parse_args())
    only, backend = given.pop("only"), given.pop("backend")
    names = list(STORMS) if only is None else only.split(",")
    unknown = [name for name in names if name not in STORMS]
    if unknown:
        parser.error(f"--only: no storm {', '.join(unknown)}; use some of {', '.join(STORMS)}")
    arguments = StormArguments(given.pop("seed"), given.pop("quick"), given.pop("keep"), given)
    return names, backend, arguments


if __name__ == "__main__":
    sys.exit(main())
