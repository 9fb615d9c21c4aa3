"""One browser and one site for all tests of the folder; a fresh window, watched, for each."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

from tests.web.browser.site import Site
from tests.web.browser.window import PATIENCE_MS, open_window

expect.set_options(timeout=PATIENCE_MS)

ROOT = Path(__file__).resolve().parents[3]
SWITCHES = (
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip


@pytest.fixture(scope="session")
def chromium() -> str:
    """The executable that the set-up found or installed."""
    script = ROOT / "scripts" / "browser.sh"
    found = subprocess.run(["sh", script], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


# Of the package, not of the session: while it lives no other loop may run in this thread.
@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as started:
        yield from _launched(started, chromium)


def _launched(started: Playwright, chromium: str) -> Iterator[Browser]:
    launched = started.chromium.launch(executable_path=chromium, args=list(SWITCHES))
    yield launched
    launched.close()


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site")).start()
    yield made
    made.stop()


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """A window that fails the test for any error in its console."""
    with open_window(browser, site.address) as window:
        yield window
