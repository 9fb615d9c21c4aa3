"""Who may look sees no way to act, and is refused when trying anyway."""

import pytest
from playwright.sync_api import Browser, Page, expect

from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus
from forge_jobs.web import Role
from tests.web.browser.site import Site
from tests.web.browser.window import PAGES, PATIENCE_MS, as_role, open_window
from tests.web.panel import PASSWORD

# Everything that would change something, had it been pressed.
CHANGING = """() => [...document.querySelectorAll('#view button')]
    .filter(b => b.form && b.form.method === 'post').map(b => b.textContent.trim())"""
FORBIDDEN = 403


def test_a_viewer_has_nothing_to_press(browser: Browser, site: Site) -> None:
    (lost,) = site.enqueue(
        NewJob(kind="send", queue="mail", payload=b'{"to": "v@example.com"}', max_attempts=1)
    )
    site.wait_for(1, JobStatus.DEAD, error="v@example.com")
    look = as_role(Role.VIEWER)
    with open_window(browser, site.staff_address, extra_http_headers=look) as page:
        for address in (*PAGES, f"/jobs/{lost}", "/cron/nightly"):
            if address == "/audit":
                continue
            page.goto(address)
            assert page.evaluate(CHANGING) == [], address
            assert page.locator("input[name=ids]").count() == 0, address
        assert "Audit" not in page.locator("nav.side").inner_text()
        page.goto("/dead?error=v%40example.com")
        row = page.locator(f"#job-{lost} a[data-drawer]")
        row.click()
        drawer = page.locator("#drawer")
        expect(drawer.locator(".card.bad")).to_contain_text("v@example.com")
        expect(drawer.get_by_role("button", name="Retry")).to_have_count(0)
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("d")
        expect(page.locator("#confirm")).to_be_hidden()


@pytest.mark.parametrize(
    "path",
    [
        "/act/queues/quick/pause",
        "/act/jobs/retry",
        "/act/cron/nightly/trigger",
        "/act/limits/drain",
    ],
)
def test_a_viewer_who_tries_anyway_is_refused(browser: Browser, site: Site, path: str) -> None:
    look = as_role(Role.VIEWER)
    with open_window(browser, site.staff_address, extra_http_headers=look) as page:
        answer = page.request.post(path, form={"ids": "0" * 26, "name": "smtp"})
        assert answer.status == FORBIDDEN
        assert "needs the role operator" in answer.text()


def test_what_is_not_for_a_role_is_not_streamed_to_it_either(browser: Browser, site: Site) -> None:
    look = as_role(Role.VIEWER)
    with open_window(browser, site.staff_address, extra_http_headers=look) as page:
        for address in ("/audit", "/live?view=/audit", "/live?view=/bulk/retry"):
            assert page.request.get(address).status == FORBIDDEN, address


def test_an_operator_acts_but_does_not_destroy(browser: Browser, site: Site) -> None:
    with open_window(
        browser, site.staff_address, extra_http_headers=as_role(Role.OPERATOR)
    ) as page:
        page.goto("/jobs")
        said = page.locator("button[data-bulk]").all_inner_texts()
        assert said == ["Retry", "Run now", "Cancel"]
        page.goto("/cron/nightly")
        assert page.get_by_role("button", name="Delete").count() == 0
        assert page.get_by_role("button", name="Run now").count() == 1
        refused = page.request.post("/act/cron/nightly/delete", form={})
        assert refused.status == FORBIDDEN
        destroyed = page.request.post("/act/jobs/delete", form={"ids": "0" * 26})
        assert not destroyed.ok
        page.goto("/cron")
        expect(page.locator("#schedule-nightly")).to_be_visible()


def test_a_password_opens_the_page_and_a_lost_login_is_told(browser: Browser, site: Site) -> None:
    room = browser.new_context(base_url=site.staff_address)
    room.set_default_timeout(PATIENCE_MS)
    page = room.new_page()
    page.goto("/queues")
    log_in(page, "not this one")
    expect(page.get_by_role("alert")).to_have_text("That is not the password.")
    log_in(page, PASSWORD)
    expect(page.locator("#q-mail")).to_be_visible()
    room.clear_cookies()
    page.get_by_label("Updates").select_option("off")
    page.get_by_label("Updates").select_option("0")
    banner = page.locator("#trouble")
    expect(banner).to_contain_text("You are logged out.")
    # what was there stays readable, and the way back leads to the same page
    expect(page.locator("#q-mail")).to_be_visible()
    banner.get_by_role("link", name="Log in again").click()
    log_in(page, PASSWORD)
    expect(page.locator("#q-mail")).to_be_visible()
    room.close()


def test_logging_out_in_one_window_is_told_in_the_other(browser: Browser, site: Site) -> None:
    room = browser.new_context(base_url=site.staff_address)
    room.set_default_timeout(PATIENCE_MS)
    left, right = room.new_page(), room.new_page()
    left.goto("/queues")
    log_in(left, PASSWORD)
    expect(left.locator("#q-mail")).to_be_visible()
    right.goto("/dead")
    right.get_by_role("button", name="Log out").click()
    expect(right.get_by_label("Password")).to_be_visible()
    banner = left.locator("#trouble")
    expect(banner).to_contain_text("You are logged out.")
    banner.get_by_role("link", name="Log in again").click()
    log_in(left, PASSWORD)
    expect(left.locator("#q-mail")).to_be_visible()
    expect(left.locator("#trouble")).to_be_hidden()
    room.close()


def log_in(page: Page, password: str) -> None:
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
