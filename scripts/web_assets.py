"""Bring the scripts of Mission Control's pages into the package.

npm installs what package-lock.json pins by hash; the few files a page loads are copied, with their
licences, into src/forge_jobs/web/static/vendor, which git ignores and the wheel packs. Node comes
from the machine, else from a wheel (requirements/node.txt).
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "src" / "forge_jobs" / "web" / "static" / "vendor"

FILES = {
    "htmx.org": ("dist/htmx.min.js",),
    "htmx-ext-sse": ("dist/sse.min.js",),
    "idiomorph": ("dist/idiomorph-ext.min.js",),
    "uplot": ("dist/uPlot.iife.min.js", "dist/uPlot.min.css"),
}


def main() -> int:
    done = subprocess.run(
        [*npm(), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        cwd=ROOT,
        check=False,
    )
    if done.returncode != 0:
        print("npm could not install what package-lock.json names: see above", file=sys.stderr)
        return 1
    copy()
    return 0


def npm() -> list[str]:
    found = shutil.which("npm")
    if found is not None:
        return [found]
    print("No npm on this machine: installing Node from a wheel (requirements/node.txt) ...")
    pins = ROOT / "requirements" / "node.txt"
    install = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([sys.executable, *install, "--require-hashes", "-r", pins], check=True)
    # npm starts node by name, so the wheel's own must be found first
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return [str(Path(sys.executable).with_name("npm"))]


def copy() -> None:
    shutil.rmtree(VENDOR, ignore_errors=True)
    VENDOR.mkdir(parents=True)
    versions: dict[str, str] = {}
    for package, files in FILES.items():
        source = ROOT / "node_modules" / package
        versions[package] = json.loads((source / "package.json").read_text())["version"]
        for name in files:
            shutil.copyfile(source / name, VENDOR / Path(name).name)
        shutil.copyfile(source / "LICENSE", VENDOR / f"{package}.LICENSE")
    (VENDOR / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
