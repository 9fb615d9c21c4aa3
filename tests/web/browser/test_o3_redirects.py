"""O3: a forged link does not redirect the browser to another site or to a script."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect
from starlette.responses import PlainTextResponse

from tests.web.browser.site import Site
from tests.web.browser.window import open_window
from tests.web.harness import PASSWORD, serve_on_socket


@pytest.mark.parametrize("form", ["http://{}/taken", "//{}/taken", "/\\{}/taken"])
def test_o3_closing_a_preview_or_logging_in_stays_on_the_site(
    browser: Browser, site: Site, form: str
) -> None:
    with serve_on_socket(PlainTextResponse("taken")) as foreign:
        back = quote(form.format(foreign.removeprefix("http://")))
        with open_window(browser, site.address) as page:
            page.goto(f"/bulk/retry?status=dead&back={back}")
            page.get_by_role("link", name="Leave it").click()
            expect(page).to_have_url(f"{site.address}/jobs")
            expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
        with open_window(browser, site.staff_address) as page:
            page.goto(f"/login?back={back}")
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Log in").click()
            expect(page).to_have_url(f"{site.staff_address}/")


def test_o3_a_script_is_not_a_redirect_target(browser: Browser, site: Site) -> None:
    with open_window(browser, site.address) as page:
        page.goto(f"/bulk/retry?status=dead&back={quote('javascript:document.title=1')}")
        link = page.get_by_role("link", name="Leave it")
        expect(link).to_have_attribute("href", "/jobs")
        link.click()
        expect(page).to_have_url(re.compile("/jobs$"))
