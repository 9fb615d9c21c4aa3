"""One browser and one site for all tests of the folder; a new window for each."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser_start import chromium
from tests.web.browser.site import Site
from tests.web.browser.window import PATIENCE_MS, open_window

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    created = Site(tmp_path_factory.mktemp("site")).start()
    yield created
    created.stop()


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """A window that fails the test for any error in its console."""
    with open_window(browser, site.address) as window:
        yield window
