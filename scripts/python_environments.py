"""Find interpreters and make a test environment for each: ``.venv/python/<version>``.

Each environment has the pinned requirements of the tests and the package itself, linked to this
folder. It shares the Postgres servers and the pooler of the environment that runs this script.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ("base", "build", "dev")
_SHARED = ("postgres", "pgbouncer")
_VERSION = "import sys, venv, ensurepip; print('.'.join(map(str, sys.version_info[:3])))"


class NoPython(Exception):
    """No interpreter of that version, or its environment cannot be made."""


def own() -> str:
    """The minor version of the interpreter that runs this."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def find(minor: str) -> Path | None:
    """An interpreter of this minor version with venv: on the path, else one of pyenv's."""
    folder = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    newest_first = sorted(folder.glob(f"{minor}.*"), key=_numbers, reverse=True)
    on_path = shutil.which(f"python{minor}")
    candidates = [Path(on_path)] if on_path else []
    for program in [*candidates, *(path / "bin" / "python" for path in newest_first)]:
        if (version(program) or "").startswith(f"{minor}."):
            return program
    return None


def version(program: Path) -> str | None:
    """``3.12.1``; None if the program does not run or lacks venv."""
    try:
        found = subprocess.run(
            [program, "-c", _VERSION], capture_output=True, text=True, check=False, cwd=ROOT
        )
    except OSError:
        return None
    return found.stdout.strip() if found.returncode == 0 else None


def environment(minor: str) -> Path:
    """The interpreter of a ready environment for this minor version. Our own if it is the same."""
    if minor == own():
        return Path(sys.executable)
    program = find(minor)
    if program is None:
        raise NoPython(f"no Python {minor} with venv here: install one, or name others")
    home = Path(sys.prefix) / "python" / minor
    python = home / "bin" / "python"
    stamp, wanted = home / "ready", _fingerprint(program)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print(f"Making an environment for Python {version(program)} ...", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    _run([program, "-m", "venv", home])
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "-qq"]
    for name in REQUIREMENTS:
        _run([*pip, "--require-hashes", "-r", f"requirements/{name}.txt"])
    _run([*pip, "--no-deps", "--no-build-isolation", "-e", "."])
    for name in _SHARED:
        (home / name).symlink_to(Path(sys.prefix) / name)
    stamp.write_text(wanted, encoding="utf-8")
    return python


def _fingerprint(program: Path) -> str:
    files = [ROOT / "requirements" / f"{name}.txt" for name in REQUIREMENTS]
    texts = [path.read_bytes() for path in [*files, ROOT / "pyproject.toml"]]
    return f"{version(program)} {hashlib.sha256(b''.join(texts)).hexdigest()}"


def _run(command: list[object]) -> None:
    done = subprocess.run([str(word) for word in command], check=False, cwd=ROOT)
    if done.returncode:
        words = " ".join(str(word) for word in command[1:4])
        raise NoPython(f"the environment cannot be made: {words} … ended with {done.returncode}")


def _numbers(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in path.name.split(".") if part.isdecimal())
