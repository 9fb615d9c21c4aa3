"""Make an environment for a version of Django and of Python: ``.venv/django/<django>-<python>``.

It has the pinned requirements of that Django (requirements/django52.txt and so on) and the package
itself, linked to this folder; no test tools, since the test project runs with Django's own.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.python_environments import ROOT, NoPython, find, own, version

DJANGOS = ("5.2", "6.0", "6.1")
# Django 6 needs Python 3.12.
PYTHONS = ("3.12", "3.13")


def newest_python() -> str | None:
    """A Python on which the newest Django runs; None if this machine has none."""
    candidates = [own(), *PYTHONS]
    return next((one for one in candidates if one in PYTHONS and find(one)), None)


def bench_environment(minor: str, *, make: bool) -> Path | None:
    """The interpreter of the newest Django with the peers of ``make bench``; without ``make`` only
    if it is there already."""
    home = Path(sys.prefix) / "django" / f"bench-{minor}"
    if not make and not (home / "ready").exists():
        return None
    return _environment(home, minor, ROOT / "requirements" / "bench-django.txt")


def environment(django: str, minor: str) -> Path:
    """The interpreter of a ready environment."""
    home = Path(sys.prefix) / "django" / f"{django}-{minor}"
    return _environment(home, minor, ROOT / "requirements" / f"django{django.replace('.', '')}.txt")


def _environment(home: Path, minor: str, pins: Path) -> Path:
    program = find(minor)
    if program is None:
        raise NoPython(f"no Python {minor} with venv here: install one, or name others")
    home.parent.mkdir(exist_ok=True)
    # Tests run in several processes, and two of them may want it.
    with (home.parent / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _made(home, program, pins)


def _made(home: Path, program: Path, pins: Path) -> Path:
    python = home / "bin" / "python"
    digest = hashlib.sha256(pins.read_bytes())
    stamp, wanted = home / "ready", f"{version(program)} {digest.hexdigest()}"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print(f"Making the environment {home.name} with Python {version(program)} ...", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    _run([program, "-m", "venv", home])
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-qq"]
    _run([*pip, "--require-hashes", "-r", pins])
    _run([*pip, "--no-deps", "--no-build-isolation", "-e", ROOT])
    stamp.write_text(wanted, encoding="utf-8")
    return python


def _run(command: list[object]) -> None:
    done = subprocess.run([str(word) for word in command], check=False, cwd=ROOT)
    if done.returncode:
        words = " ".join(str(word) for word in command[1:4])
        raise NoPython(f"the environment cannot be made: {words} … ended with {done.returncode}")


if __name__ == "__main__":
    chosen = newest_python()
    if chosen is None:
        print(f"Django {DJANGOS[-1]} is not tested here: it needs Python {' or '.join(PYTHONS)}.")
    elif sys.argv[1:] == ["bench"]:
        bench_environment(chosen, make=True)
    else:
        environment(DJANGOS[-1], chosen)
