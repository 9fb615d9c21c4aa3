"""Builds wheel and source archive from a commit, twice, and looks into them."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts import web_assets

from .project import ROOT, metadata, packed

# Two builds differ in what must not matter: folder, time zone, order of sets, rights of new files.
_CIRCUMSTANCES = (
    {"TZ": "UTC", "PYTHONHASHSEED": "1"},
    {"TZ": "Asia/Kolkata", "PYTHONHASHSEED": "2"},
)
_MASKS = (0o022, 0o077)
_STATIC = "forge_jobs/web/static/vendor"
_PATHS = re.compile(rb"/(?:home|Users|root|tmp|work)/[\w.-]+/")
_HOSTS = re.compile(rb"(?:pypi|npmjs|pythonhosted)\.(?:org|com)", re.I)


class BadRelease(Exception):
    """The archives are not what a release should be."""


def build_twice(commit: str, folder: Path) -> list[Path]:
    """Wheel and source archive of a commit; fails unless a second build has the same bytes."""
    first, second = (
        _build(commit, folder / f"{number}", settings, mask)
        for number, (settings, mask) in enumerate(zip(_CIRCUMSTANCES, _MASKS, strict=True))
    )
    for one, other in zip(first, second, strict=True):
        if one.name != other.name or one.read_bytes() != other.read_bytes():
            raise BadRelease(f"{one.name} differs between two builds of {commit}")
    return first


def wheel_of_sdist(sdist: Path, folder: Path) -> Path:
    """The wheel that the source archive builds, without npm."""
    with tarfile.open(sdist) as packed_files:
        packed_files.extractall(folder, filter="data")
    [source] = folder.iterdir()
    _hatch(source, folder / "dist", {"PATH": str(folder / "nothing")}, "wheel")
    [made] = (folder / "dist").iterdir()
    return made


def check_with_twine(archives: list[Path]) -> None:
    """``twine check --strict``: metadata and description can be shown."""
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, archives)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BadRelease(f"twine check: {done.stdout}{done.stderr}")


def check_contents(wheel: Path) -> None:
    """What the wheel has and has not in it."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        wanted = {f"{_STATIC}/{file}" for one in packed() for file in one.files}
        wanted |= {"forge_jobs/py.typed", "telegram_gateway/py.typed"}
        if missing := wanted - names:
            raise BadRelease(f"the wheel lacks {', '.join(sorted(missing))}")
        tops = {name.partition("/")[0] for name in names}
        info = f"forge_jobs-{metadata()['version']}.dist-info"
        if tops != {"forge_jobs", "telegram_gateway", info}:
            raise BadRelease(f"the wheel has folders of its own: {', '.join(sorted(tops))}")
        for name in sorted(names):
            for told in told_of_the_machine(name, archive.read(name)):
                raise BadRelease(f"{name} in the wheel names {told}")


def told_of_the_machine(name: str, content: bytes) -> Iterator[str]:
    """Paths of a machine that builds, and hosts of package registries, in the text of a file."""
    if name.endswith((".js", ".css", ".png", ".svg")):
        return
    for pattern in (_PATHS, _HOSTS):
        if found := pattern.search(content):
            yield found[0].decode()


def _build(commit: str, folder: Path, settings: Mapping[str, str], mask: int) -> list[Path]:
    source = folder / "source"
    source.mkdir(parents=True)
    before = os.umask(mask)
    try:
        archive = subprocess.run(
            ["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
        if web_assets.is_installed():
            # The pinned files: the build compares their hashes, and fetches them otherwise.
            vendor = web_assets.VENDOR.relative_to(ROOT)
            shutil.copytree(web_assets.VENDOR, source / vendor)
        _hatch(source, folder / "dist", {**settings, "SOURCE_DATE_EPOCH": _time_of(commit)})
    finally:
        os.umask(before)
    return sorted((folder / "dist").iterdir())


def _hatch(source: Path, dist: Path, settings: Mapping[str, str], *targets: str) -> None:
    chosen = [word for target in targets or ("sdist", "wheel") for word in ("--target", target)]
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *chosen, "--directory", str(dist)],
        cwd=source,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BadRelease(f"the build failed: {done.stdout}{done.stderr}")


def _time_of(commit: str) -> str:
    shown = ["git", "show", "--no-patch", "--format=%ct", commit]
    return subprocess.run(
        shown, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
