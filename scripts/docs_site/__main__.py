"""Build the site: copy the pages with their links rewritten, then run Sphinx on the copy.

    python -m scripts.docs_site                 into build/docs
    python -m scripts.docs_site --output DIR    elsewhere

Any warning of Sphinx fails the build, and so does a page that no section of docs/README.md names.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from . import llms
from .diagrams import CannotDraw
from .finishing import finish
from .navigation import BadNavigation
from .staging import BadLink, stage

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="make docs")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "docs")
    given = parser.parse_args()
    return build(given.output.absolute())


def build(output: Path) -> int:
    """Build the site into a folder; the exit code. The copy lies beside it, for error texts."""
    pages = output.with_name(f"{output.name}-pages")
    shutil.rmtree(output, ignore_errors=True)
    try:
        stage(ROOT, pages)
    except (BadLink, BadNavigation, CannotDraw) as error:
        print(error, file=sys.stderr)
        return 1
    sphinx = [sys.executable, "-m", "sphinx", "--builder", "html", "--quiet", "--fail-on-warning"]
    sphinx += ["--jobs", "auto"]
    sphinx += ["--conf-dir", str(CONFIGURATION), "--doctree-dir", str(pages / ".doctrees")]
    done = subprocess.run([*sphinx, str(pages), str(output)], cwd=ROOT, check=False)
    if done.returncode == 0:
        finish(output)
        llms.write(ROOT, output)
        print(f"The site is in {output}: open {output / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
