"""A Chromium for tests of pages: the one the set-up found or installed, without its own errands."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SWITCHES = (
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip


@contextmanager
def chromium() -> Generator[Browser]:
    """Use it in fixtures of a package, not of the session: while it lives no other event loop may
    run in this thread."""
    script = ROOT / "scripts" / "browser.sh"
    found = subprocess.run(["sh", script], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    with sync_playwright() as started:
        place = found.stdout.strip()
        launched = started.chromium.launch(executable_path=place, args=list(SWITCHES))
        try:
            yield launched
        finally:
            launched.close()
