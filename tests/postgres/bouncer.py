"""PgBouncer in transaction mode for the tests' server: Debian's 1.18, installed by ``make setup``.

That version does not support prepared statements and accepts LISTEN without delivering anything.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .server import unprivileged

_START_S = 60.0

_SETTINGS = """
[databases]
* = host={server} port=5432
[pgbouncer]
listen_addr =
listen_port = 5432
unix_socket_dir = {folder}
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 5
max_client_conn = 200
logfile = {folder}/log
pidfile =
"""


def program() -> Path | None:
    """The path of the program; None if it is not installed."""
    ours = Path(sys.prefix) / "pgbouncer" / "pgbouncer"
    if ours.exists():
        return ours
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return None if found is None else Path(found)


@contextlib.contextmanager
def bouncer(server: Path, found: Path) -> Iterator[Path]:
    """Run PgBouncer for the server with its socket in ``server``; yields its own socket folder."""
    folder = Path(tempfile.mkdtemp(prefix="forge-bounce-"))
    account = unprivileged()
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "settings").write_text(_SETTINGS.format(server=server, folder=folder))
    # The account may have no access to the folder where it was unpacked.
    shutil.copy(found, folder / "pgbouncer")
    if (found.parent / "lib").is_dir():
        shutil.copytree(found.parent / "lib", folder / "lib")
    if account:
        shutil.chown(folder, account["user"], account["group"])
    folder.chmod(0o755)
    process = subprocess.Popen(
        [folder / "pgbouncer", "-q", folder / "settings"],
        cwd=folder,
        env={**os.environ, "LD_LIBRARY_PATH": str(folder / "lib")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **account,
    )
    try:
        deadline = time.monotonic() + _START_S
        while not (folder / ".s.PGSQL.5432").exists():
            log = folder / "log"
            told = log.read_text() if log.exists() else "it wrote no log"
            assert process.poll() is None, told
            assert time.monotonic() < deadline, told
            time.sleep(0.05)
        yield folder
    finally:
        process.terminate()
        process.wait(_START_S)
        shutil.rmtree(folder, ignore_errors=True)
