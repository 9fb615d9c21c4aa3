"""The alerts page: a rule is added and tested, an episode opens. A queue is paused in 2 clicks."""

import time
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from forge_jobs.core.job import NewJob
from rigs.storms.webhook_receiver import receiving
from tests.web.browser.clicks import Clicks
from tests.web.browser.site import PATIENCE_S, Site
from tests.web.browser.test_every_page import AXE, picture
from tests.web.browser.window import open_window


def test_a_rule_is_added_tested_and_opens_an_episode(
    page: Page, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_ALERT_HOSTS", "127.0.0.1")
    with receiving() as receiver:
        page.goto("/alerts")
        page.get_by_text("New alert rule").click()
        form = page.locator("#new-alert")
        form.get_by_label("Name").fill("full")
        form.get_by_label("Condition").select_option("backlog")
        form.get_by_label("Opens above").fill("0")
        form.get_by_label("Queue", exact=True).fill("nobody-serves-it")
        form.get_by_label("Webhook").fill(receiver.url)
        form.get_by_label("Secret").fill("0123456789abcdef")
        form.get_by_role("button", name="Add").click()
        notices = page.locator("#notices")
        expect(notices).to_contain_text("forge alerts add full backlog")
        expect(notices).not_to_contain_text("0123456789abcdef")
        row = page.locator("#alert-full")
        expect(row).to_contain_text("http://127.0.0.1")
        expect(row).not_to_contain_text("secret-path")
        row.get_by_role("button", name="Test").click()
        expect(notices).to_contain_text("sends a test message of full")
        expect(notices.get_by_role("button", name="Copy as curl").last).to_be_visible()
        [job] = site.enqueue(NewJob(kind="note", queue="nobody-serves-it"))
        expect(row).to_contain_text("1 open")
        episodes = page.get_by_role("row").filter(has_text="nobody-serves-it").last
        expect(episodes.get_by_role("link", name="opened")).to_be_visible()
        until = time.monotonic() + PATIENCE_S
        while sorted(receiver.types) != ["alert.opened", "alert.test"]:
            assert time.monotonic() < until, receiver.types
            time.sleep(0.05)
        page.request.post(f"/api/jobs/{job}/cancel")
        row.get_by_role("button", name="Remove").click()
        dialog = page.locator("#confirm")
        expect(dialog).to_contain_text("forge alerts remove full")
        expect(dialog).to_contain_text("curl -X DELETE")
        expect(dialog).to_contain_text("$FORGE_TOKEN")
        dialog.get_by_role("button", name="Remove").click()
        expect(row).to_have_count(0)


def test_pause_a_queue(page: Page, site: Site) -> None:
    clicks = Clicks()
    page.goto("/")
    clicks(page.locator("nav.side").get_by_role("link", name="Queues"))
    clicks(page.locator("form[action$='/act/queues/mail/pause'] button"))
    expect(page.locator("#notices")).to_contain_text("forge queues pause mail")
    page.request.post("/api/queue/mail/paused", data={"paused": False})


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_alerts_page_passes_axe_with_rules_and_episodes(
    browser: Browser, site: Site, colours: Any
) -> None:
    with open_window(browser, site.address, color_scheme=colours, bypass_csp=True) as page:
        for name, condition in (("late", "longest_wait"), ("lonely", "no_worker")):
            rule = {
                "name": f"{name}-{colours}", "condition": condition, "for_s": 0,
                "url": "https://hooks.example/x", "secret": "0123456789abcdef",
                "quiet": ["00:00-24:00"],
            }  # fmt: skip
            assert page.request.post("/api/alerts/rules", data=rule).ok
        site.enqueue(NewJob(kind="note", queue="lonely"))
        page.goto("/alerts")
        page.add_script_tag(path=AXE)
        expect(page.locator("#episodes-title")).to_be_visible()
        expect(page.get_by_role("row").filter(has_text="lonely").last).to_contain_text("open")
        picture(page, "alerts-with-episodes", colours)
        page.get_by_text("New alert rule").click()
        picture(page, "new-alert-rule", colours)
        for name in ("late", "lonely"):
            assert page.request.delete(f"/api/alerts/rules/{name}-{colours}").ok
