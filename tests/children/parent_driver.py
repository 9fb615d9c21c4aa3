"""A program that runs the worker parent with fake workers."""

import logging
import sys

from forge_jobs.cli.worker_parent import run_parent

if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level="INFO", format="%(message)s")
    act, start_log, processes, grace_s, lease_s = sys.argv[1:6]
    heavy = [name for name in ("typer", "rich", "msgspec", "sqlite3") if name in sys.modules]
    print("heavy imports:", heavy, file=sys.stderr, flush=True)
    code = run_parent(
        [act, start_log],
        processes=int(processes),
        grace_s=float(grace_s),
        lease_s=float(lease_s),
        child_module="tests.children.fake_worker",
    )
    sys.exit(code)
