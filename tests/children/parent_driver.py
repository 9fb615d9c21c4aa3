"""Runs the worker parent over fake workers, as a program of its own."""

import logging
import sys

from forge_jobs.cli.worker_parent import run_parent

if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level="INFO", format="%(message)s")
    act, journal, processes, grace_s, lease_s = sys.argv[1:6]
    heavy = [name for name in ("typer", "rich", "msgspec", "sqlite3") if name in sys.modules]
    print("heavy imports:", heavy, file=sys.stderr, flush=True)
    code = run_parent(
        [act, journal],
        processes=int(processes),
        grace_s=float(grace_s),
        lease_s=float(lease_s),
        child_module="tests.children.fake_worker",
    )
    sys.exit(code)
