"""The store or the server goes away while a page is open: the page says so, and recovers."""

from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.postgres.server import private_server
from tests.web.browser.site import Site
from tests.web.browser.window import PATIENCE_MS, open_window
from tests.web.panel import on_a_socket, panel


def test_the_store_goes_away_and_comes_back(browser: Browser) -> None:
    """A Postgres server is killed under an open page and started again."""
    with private_server() as server:
        url = server.url(schema="outage", password="sesame")
        with (
            panel(url, auth=None) as made,
            on_a_socket(made.app) as address,
            open_window(browser, address) as page,
        ):
            page.goto("/queues")
            put(page, "mail")
            expect(page.locator("#q-mail")).to_be_visible()
            server.stop(immediate=True)
            banner = page.locator("#trouble")
            expect(banner).to_contain_text("cannot be reached")
            assert "sesame" not in page.content()
            # what was there stays readable meanwhile
            expect(page.locator("#q-mail")).to_be_visible()
            server.start()
            expect(banner).to_be_hidden()
            put(page, "late")
            expect(page.locator("#q-late")).to_be_visible()


def put(page: Page, queue: str) -> None:
    """A job for a queue, so that there is one."""
    asked = page.request.post("/api/jobs/enqueue", data={"kind": "send", "queue_name": queue})
    assert asked.ok, asked.text()


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
