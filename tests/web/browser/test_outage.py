"""An outage of the store or the server while a page is open: it is shown, and the page recovers."""

from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.postgres.server import private_server
from tests.web.browser.site import Site
from tests.web.browser.window import PATIENCE_MS, open_window
from tests.web.harness import serve_on_socket, web_harness


def test_an_outage_of_the_store_shows_and_ends(browser: Browser) -> None:
    """A Postgres server is killed under an open page and started again."""
    with private_server() as server:
        url = server.url(schema="outage", password="sesame")
        with (
            web_harness(url, auth=None) as created,
            serve_on_socket(created.app) as address,
            open_window(browser, address) as page,
        ):
            page.goto("/queues")
            put(page, "mail")
            expect(page.locator("#q-mail")).to_be_visible()
            server.stop(immediate=True)
            banner = page.locator("#trouble")
            expect(banner).to_contain_text("cannot be reached")
            assert "sesame" not in page.content()
            # the old content stays readable
            expect(page.locator("#q-mail")).to_be_visible()
            server.start()
            expect(banner).to_be_hidden()
            put(page, "late")
            expect(page.locator("#q-late")).to_be_visible()


def put(page: Page, queue: str) -> None:
    """Enqueue a job, so that its queue exists."""
    asked = page.request.post("/api/jobs/enqueue", data={"kind": "send", "queue_name": queue})
    assert asked.ok, asked.text()


def test_an_outage_of_the_server_shows_and_ends(browser: Browser, tmp_path: Path) -> None:
    first = Site(tmp_path).start()
    browser_context = browser.new_context(base_url=first.address)
    page = browser_context.new_page()
    page.goto("/queues")
    expect(page.locator("#q-mail")).to_be_visible()
    first.stop()
    expect(page.locator("#trouble")).to_contain_text("trying again", timeout=PATIENCE_MS)
    second = Site(tmp_path, port=first.port).start()
    expect(page.locator("#trouble")).to_be_hidden(timeout=PATIENCE_MS)
    browser_context.close()
    second.stop()
