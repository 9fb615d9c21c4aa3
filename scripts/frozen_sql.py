"""Records the checksums of a release's migrations and function sets.

    python -m scripts.frozen_sql

A database that has run a migration never runs it again, and a function set is installed again only
if its revision rises. So the files of a release must not change after it. Run this for a release,
as the last step before its tag; tests/repository/test_frozen_sql.py compares the files with it.
"""

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests" / "repository" / "frozen_sql.json"
_BACKENDS = Path("src") / "forge_jobs" / "backends"
_REVISION = re.compile(r"^-- revision: (\d+)$", re.MULTILINE)

Frozen = dict[str, dict[str, str]]


def recorded() -> Frozen:
    """Version of a release → what it froze → checksum; oldest release first."""
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


def current(root: Path = ROOT) -> dict[str, str]:
    """The checksums of the files as they are. A function set is named with its revision: another
    revision is another thing."""
    found: dict[str, str] = {}
    for path in sorted((root / _BACKENDS).glob("*/migrations/*.sql")):
        found[path.relative_to(root / _BACKENDS).as_posix()] = _checksum(path)
    for path in sorted((root / _BACKENDS).glob("*/functions/*.sql")):
        revision = _REVISION.search(path.read_text(encoding="utf-8"))
        number = "?" if revision is None else revision[1]
        name = path.relative_to(root / _BACKENDS).as_posix()
        found[f"{name} revision {number}"] = _checksum(path)
    return found


def problems(frozen: Frozen, found: dict[str, str]) -> list[str]:
    """What changed since it was released, each with what to do instead."""
    told: list[str] = []
    for version, files in frozen.items():
        for name, checksum in files.items():
            if "/migrations/" in name and found.get(name) != checksum:
                told.append(
                    f"{name} was released with {version} and must not change: restore it and add a "
                    "new migration"
                )
            elif name in found and found[name] != checksum:
                told.append(
                    f"{name} was released with {version}: raise its revision, or make a new "
                    "version of the set beside it if signature or meaning changed"
                )
    return told


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> int:
    with (ROOT / "pyproject.toml").open("rb") as file:
        version: str = tomllib.load(file)["project"]["version"]
    earlier = {name: files for name, files in recorded().items() if name != version}
    found = current()
    wrong = problems(earlier, found)
    for problem in wrong:
        print(problem, file=sys.stderr)
    if wrong:
        return 1
    known = {name for files in earlier.values() for name in files}
    new = {name: checksum for name, checksum in found.items() if name not in known}
    RECORD.write_text(json.dumps({**earlier, version: new}, indent=2) + "\n", encoding="utf-8")
    print(f"{version}: {len(new)} files frozen")
    return 0


if __name__ == "__main__":
    sys.exit(main())
