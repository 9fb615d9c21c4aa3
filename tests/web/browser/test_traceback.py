"""The traceback of a failed job on its page and in the drawer."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser.site import Site
from tests.web.browser.test_actions import job
from tests.web.browser.window import open_window

CODE = 'raise Dead(f"no mailbox for {to}")'


def test_u1_the_drawer_shows_the_traceback_and_keeps_it_closed(page: Page, site: Site) -> None:
    (found,) = site.enqueue(job("send", "mail", to="traceback@example.com"))
    page.goto("/dead?kind=send")
    page.locator(f"#job-{found} a[data-drawer]").click()
    block = page.locator("#drawer details.traceback")
    expect(block.locator("pre")).to_contain_text(CODE)
    expect(block.locator("pre")).to_contain_text("site.py")
    expect(block.locator("pre")).to_be_visible()
    block.locator("summary").click()
    expect(block.locator("pre")).to_be_hidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_u1_the_page_of_a_job_shows_the_traceback(
    browser: Browser, site: Site, width: int, theme: str
) -> None:
    (found,) = site.enqueue(job("send", "mail", to=f"{width}-{theme}@example.com"))
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": theme}
    with open_window(browser, site.address, **options) as page:
        page.goto("/dead?kind=send")
        expect(page.locator(f"#job-{found}")).to_have_count(1)
        page.goto(f"/jobs/{found}")
        text = page.locator("details.traceback pre")
        expect(text).to_contain_text(CODE)
        # Monospaced, wrapped inside the page, and readable on its ground.
        assert "mono" in text.evaluate("e => getComputedStyle(e).fontFamily")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert text.evaluate("e => e.scrollWidth <= e.clientWidth")
        colour, ground = text.evaluate(
            "e => [getComputedStyle(e).color, getComputedStyle(e).backgroundColor]"
        )
        assert colour != ground
