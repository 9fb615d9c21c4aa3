"""Makes the files of a release from the last commit: `make release`.

    python -m scripts.release [--output dist]

Wheel and source archive are built twice and must have the same bytes; `twine check` reads them; a
bill of materials (CycloneDX) and checksums are written beside them. Nothing is uploaded.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from scripts import frozen_sql

from . import archives, sbom
from .archives import BadRelease
from .changelog import CHANGELOG, sections
from .licences import BadLicence
from .project import ROOT, version


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.release")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    output: Path = parser.parse_args().output
    try:
        made = make(output)
    except (BadRelease, BadLicence) as error:
        print(error, file=sys.stderr)
        return 1
    for path in made:
        print(f"{path.name}  {path.stat().st_size:,} bytes")
    for note in left_to_do():
        print(f"Not done yet: {note}")
    return 0


def make(output: Path) -> list[Path]:
    """The files of a release of the last commit, in ``output``."""
    _refuse_changes()
    with tempfile.TemporaryDirectory(prefix="forge-release-") as name:
        folder = Path(name)
        sdist, wheel = sorted(archives.build_twice("HEAD", folder), key=lambda one: one.suffix)
        again = archives.wheel_of_sdist(sdist, folder / "from-sdist")
        if _files(again) != _files(wheel):
            raise BadRelease("the wheel built from the source archive has other files")
        archives.check_with_twine([sdist, wheel])
        archives.check_contents(wheel)
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        made = [Path(shutil.copy(one, output)) for one in (wheel, sdist)]
    bill = output / f"forge_jobs-{version()}.cdx.json"
    bill.write_text(sbom.written(made[0]), encoding="utf-8")
    made.append(bill)
    sums = output / "SHA256SUMS"
    lines = [f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in made]
    sums.write_text("".join(sorted(lines, key=lambda line: line[66:])), encoding="utf-8")
    return [*made, sums]


def left_to_do() -> list[str]:
    """The steps of a release that a person decides about and that are not done."""
    notes: list[str] = []
    if sections(CHANGELOG.read_text(encoding="utf-8")).get(version()) is None:
        notes.append(f"no section {version()}: python -m scripts.release.changelog DATE")
    frozen = {item for files in frozen_sql.recorded().values() for item in files.items()}
    if set(frozen_sql.current().items()) - frozen:
        notes.append("migrations are not frozen as they are: python -m scripts.frozen_sql")
    return notes


def _refuse_changes() -> None:
    shown = ["git", "status", "--porcelain"]
    done = subprocess.run(shown, cwd=ROOT, capture_output=True, text=True, check=True)
    if done.stdout.strip():
        raise BadRelease("there are changes that are not committed: a release is made of a commit")


def _files(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: one.CRC for one in archive.infolist()}


if __name__ == "__main__":
    sys.exit(main())
