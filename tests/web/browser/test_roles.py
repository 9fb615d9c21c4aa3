"""Roles: viewers see no buttons, and the server refuses their actions."""

import pytest
from playwright.sync_api import Browser, Page, expect

from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus
from forge_jobs.web import Role
from tests.web.browser.site import Site
from tests.web.browser.window import PAGES, PATIENCE_MS, as_role, open_window
from tests.web.harness import PASSWORD

# Every control that would change something.
CHANGING = """() => [...document.querySelectorAll('#view button')]
    .filter(b => b.form && b.form.method === 'post').map(b => b.textContent.trim())"""
FORBIDDEN = 403


def test_a_viewer_sees_no_buttons(browser: Browser, site: Site) -> None:
    (lost,) = site.enqueue(
        NewJob(kind="send", queue="mail", payload=b'{"to": "v@example.com"}', max_attempts=1)
    )
    site.wait_for(1, JobStatus.DEAD, error="v@example.com")
    viewer_headers = as_role(Role.VIEWER)
    with open_window(browser, site.staff_address, extra_http_headers=viewer_headers) as page:
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
def test_the_server_refuses_actions_of_a_viewer(browser: Browser, site: Site, path: str) -> None:
    viewer_headers = as_role(Role.VIEWER)
    with open_window(browser, site.staff_address, extra_http_headers=viewer_headers) as page:
        answer = page.request.post(path, form={"ids": "0" * 26, "name": "smtp"})
        assert answer.status == FORBIDDEN
        assert "needs the role operator" in answer.text()


def test_a_page_above_the_role_is_not_streamed_either(browser: Browser, site: Site) -> None:
    viewer_headers = as_role(Role.VIEWER)
    with open_window(browser, site.staff_address, extra_http_headers=viewer_headers) as page:
        for address in ("/audit", "/live?view=/audit", "/live?view=/bulk/retry"):
            assert page.request.get(address).status == FORBIDDEN, address


def test_an_operator_acts_but_does_not_delete(browser: Browser, site: Site) -> None:
    with open_window(
        browser, site.staff_address, extra_http_headers=as_role(Role.OPERATOR)
    ) as page:
        page.goto("/jobs")
        messages = page.locator("button[data-bulk]").all_inner_texts()
        assert messages == ["Retry", "Run now", "Cancel"]
        page.goto("/cron/nightly")
        assert page.get_by_role("button", name="Delete").count() == 0
        assert page.get_by_role("button", name="Run now").count() == 1
        refused = page.request.post("/act/cron/nightly/delete", form={})
        assert refused.status == FORBIDDEN
        destroyed = page.request.post("/act/jobs/delete", form={"ids": "0" * 26})
        assert not destroyed.ok
        page.goto("/cron")
        expect(page.locator("#schedule-nightly")).to_be_visible()


def test_a_password_logs_in_and_a_lost_login_is_shown(browser: Browser, site: Site) -> None:
    browser_context = browser.new_context(base_url=site.staff_address)
    browser_context.set_default_timeout(PATIENCE_MS)
    page = browser_context.new_page()
    page.goto("/queues")
    log_in(page, "not this one")
    expect(page.get_by_role("alert")).to_have_text("That is not the password.")
    log_in(page, PASSWORD)
    expect(page.locator("#q-mail")).to_be_visible()
    browser_context.clear_cookies()
    page.get_by_label("Updates").select_option("off")
    page.get_by_label("Updates").select_option("0")
    banner = page.locator("#trouble")
    expect(banner).to_contain_text("You are logged out.")
    # the old content stays readable, and logging in again returns to the same page
    expect(page.locator("#q-mail")).to_be_visible()
    banner.get_by_role("link", name="Log in again").click()
    log_in(page, PASSWORD)
    expect(page.locator("#q-mail")).to_be_visible()
    browser_context.close()


def test_logging_out_in_one_window_shows_in_the_other(browser: Browser, site: Site) -> None:
    browser_context = browser.new_context(base_url=site.staff_address)
    browser_context.set_default_timeout(PATIENCE_MS)
    left, right = browser_context.new_page(), browser_context.new_page()
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
    browser_context.close()


def log_in(page: Page, password: str) -> None:
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
