"""``python -m rigs.storms``: raise storms, show them, judge them. Exit code 1 when a promise broke.

``--only`` and ``--backend`` choose some of them. A storm is a module of this package with the
backends it can be raised on (``BACKENDS``) and ``storm(backend, order) -> bool``, which prints what
it finds and answers whether every promise was kept.
"""

import argparse
import random
import sys
from importlib import import_module
from typing import Any

from rigs.storms.order import Order

# What each is about is said at the head of its module.
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
    "gateway": "rigs.storms.gateway",
}


def main() -> int:
    names, backend, order = _asked()
    broken: list[str] = []
    for name in names:
        module: Any = import_module(STORMS[name])
        for one in module.BACKENDS:
            if backend in (None, one) and not module.storm(one, order):
                broken.append(f"{name} on {one}")
    if broken:
        print(f"FAILED: {', '.join(broken)}. Again: --seed {order.seed}")
        return 1
    print("Every promise was kept.")
    return 0


def _asked() -> tuple[list[str], str | None, Order]:
    parser = argparse.ArgumentParser(prog="python -m rigs.storms", description=__doc__)
    parser.add_argument("--only", metavar="NAMES", help=f"some of: {','.join(STORMS)}")
    parser.add_argument("--backend", choices=("sqlite", "postgres"))
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--producers", type=int)
    parser.add_argument("--lease", type=float, dest="lease_s")
    parser.add_argument("--every", type=float, dest="every_s", help="mean seconds between faults")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--quick", action="store_true", help="the small storms of the tests")
    parser.add_argument("--keep", action="store_true", help="keep the histories")
    given = vars(parser.parse_args())
    only, backend = given.pop("only"), given.pop("backend")
    names = list(STORMS) if only is None else only.split(",")
    unknown = [name for name in names if name not in STORMS]
    if unknown:
        parser.error(f"--only: no storm {', '.join(unknown)}; there are {', '.join(STORMS)}")
    order = Order(given.pop("seed"), given.pop("quick"), given.pop("keep"), given)
    return names, backend, order


if __name__ == "__main__":
    sys.exit(main())
