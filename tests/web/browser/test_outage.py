"""The store or the server goes away while a page is open: the page says so, and recovers."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from forge_jobs.core.errors import Unavailable
from tests.web.browser.site import Site
from tests.web.browser.window import PATIENCE_MS


def test_the_store_goes_away_and_comes_back(
    page: Page, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.goto("/queues")
    expect(page.locator("#q-mail")).to_be_visible()

    async def away() -> None:
        raise Unavailable("the store cannot be reached: postgresql://forge:sesame@db/jobs")

    with monkeypatch.context() as patch:
        patch.setattr(site.forge, "aready", away)
        banner = page.locator("#trouble")
        expect(banner).to_contain_text("the store cannot be reached")
        assert "sesame" not in page.content()
        # what was there stays readable meanwhile
        expect(page.locator("#q-mail")).to_be_visible()
    expect(banner).to_be_hidden()


def test_the_server_goes_away_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    first = Site(tmp_path).start()
    room = browser.new_context(base_url=first.address)
    page = room.new_page()
    page.goto("/queues")
    expect(page.locator("#q-mail")).to_be_visible()
    first.stop()
    expect(page.locator("#trouble")).to_contain_text("trying again", timeout=PATIENCE_MS)
    second = Site(tmp_path, port=first.port).start()
    expect(page.locator("#trouble")).to_be_hidden(timeout=PATIENCE_MS)
    room.close()
    second.stop()
