"""Bring the scripts and the font of Mission Control's pages into the package.

npm installs what package-lock.json pins by hash; the few files a page loads are copied, with their
licences, into src/forge_jobs/web/static/vendor, which git ignores and the wheel packs. `make setup`
runs this file; a build of the package loads it (hatch_build.py). Standard library and npm only.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "src" / "forge_jobs" / "web" / "static" / "vendor"
VERSIONS = VENDOR / "versions.json"

FILES = {
    "@fontsource-variable/inter": ("files/inter-latin-wght-normal.woff2",),
    "htmx.org": ("dist/htmx.min.js",),
    "htmx-ext-sse": ("dist/sse.min.js",),
    "idiomorph": ("dist/idiomorph-ext.min.js",),
    "uplot": ("dist/uPlot.iife.min.js", "dist/uPlot.min.css"),
}


class CannotFetch(Exception):
    """The files of the pages could not be fetched; the text says why and what to do."""


def main() -> int:
    """For contributors: node_modules stays, because tests use what else is pinned there."""
    try:
        install(npm() or npm_from_a_wheel(), ROOT)
    except CannotFetch as error:
        print(error, file=sys.stderr)
        return 1
    copy(ROOT / "node_modules")
    return 0


def bring() -> None:
    """For a build: nothing where the pinned files are in place, else fetch them in a folder of its
    own, so that a node_modules beside package.json stays as it is."""
    if is_installed():
        return
    found = npm()
    if found is None:
        raise CannotFetch("there is no npm on this machine")
    with tempfile.TemporaryDirectory(prefix="forge-pages-") as name:
        folder = Path(name)
        for file in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copyfile(ROOT / file, folder / file)
        install(found, folder, "--omit=dev")
        copy(folder / "node_modules")


def is_installed() -> bool:
    """Whether every file is there, from the packages that package-lock.json pins, unchanged."""
    try:
        kept = json.loads(VERSIONS.read_text())
        return kept["packages"] == pins() and kept["files"] == hashes()
    except (OSError, ValueError, KeyError, TypeError):
        return False


def npm() -> str | None:
    return shutil.which("npm")


def npm_from_a_wheel() -> str:
    """Node installed beside this interpreter; not for a build, whose interpreter is the user's."""
    print("No npm on this machine: installing Node from a wheel (requirements/node.txt) ...")
    wanted = ROOT / "requirements" / "node.txt"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    if subprocess.run([*pip, "--require-hashes", "-r", wanted], check=False).returncode != 0:
        raise CannotFetch("Node could not be installed from a wheel: install Node.js with npm")
    # npm starts node by name, so the wheel's own must be found first
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return str(Path(sys.executable).with_name("npm"))


def install(npm: str, folder: Path, *options: str) -> None:
    """What package-lock.json names, from npm's cache where it is there: its hash decides."""
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefer-offline")
    try:
        subprocess.run([npm, "ci", *quiet, *options], cwd=folder, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        text = "npm could not install what package-lock.json names"
        raise CannotFetch(f"{text} ({error})") from error


def copy(modules: Path) -> None:
    """The files of the pages; versions.json comes last and says that all the others are there."""
    shutil.rmtree(VENDOR, ignore_errors=True)
    VENDOR.mkdir(parents=True)
    for package, files in FILES.items():
        for name in files:
            shutil.copyfile(modules / package / name, VENDOR / Path(name).name)
        shutil.copyfile(modules / package / "LICENSE", VENDOR / licence_file(package))
    kept = {"packages": pins(), "files": hashes()}
    VERSIONS.write_text(json.dumps(kept, indent=2) + "\n")


def licence_file(package: str) -> str:
    """The name of a package's licence beside its files: without the scope of the package."""
    return f"{package.rpartition('/')[2]}.LICENSE"


def pins() -> dict[str, str]:
    """Version and hash of each package, as package-lock.json has them."""
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    found = {package: locked[f"node_modules/{package}"] for package in FILES}
    return {name: f"{pin['version']} {pin['integrity']}" for name, pin in found.items()}


def hashes() -> dict[str, str]:
    """The hash of every file that a build packs."""
    names = [Path(name).name for files in FILES.values() for name in files]
    names += [licence_file(package) for package in FILES]
    return {name: hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() for name in names}


if __name__ == "__main__":
    sys.exit(main())
