"""A task of a bad night in at most three clicks: is cron healthy."""

from playwright.sync_api import Page, expect

from forge_jobs.core.status import JobStatus
from tests.web.browser.clicks import Clicks
from tests.web.browser.site import Site


def test_is_cron_healthy(page: Page, site: Site) -> None:
    page.request.post("/api/cron/nightly/trigger")
    site.wait_for(1, JobStatus.DONE, kind="clean")
    clicks = Clicks()
    page.goto("/")
    clicks(page.get_by_role("navigation", name="Pages").get_by_role("link", name="Cron"))
    row = page.locator("#schedule-nightly")
    expect(row).to_contain_text("at 03:00")
    expect(row.get_by_role("img", name="last 1 run: 1 done")).to_be_visible()
    expect(row).to_contain_text("on")
    clicks(row.get_by_role("link", name="nightly"))
    expect(page.locator("ol.next li")).to_have_count(5)
    expect(page.locator("ol.next li").first).to_contain_text("03:00:00 UTC")
    result = page.locator("table tbody tr").first
    expect(result).to_contain_text("triggered")
    expect(result).to_contain_text("done")
    clicks(page.get_by_role("link", name="All its jobs"))
    expect(page.locator("tr[id^=job-]")).to_have_count(1)


def test_a_schedule_says_why_it_does_not_run(page: Page) -> None:
    page.request.post("/api/queue/quick/paused", data={"paused": True})
    page.goto("/cron")
    expect(page.locator("#schedule-nightly")).to_contain_text("queue 'quick' is paused")
    page.get_by_role("link", name="nightly").click()
    expect(page.get_by_role("heading", name="Why did it not run?")).to_be_visible()
    expect(page.locator(".reasons")).to_contain_text("forge queues resume quick")
    page.request.post("/api/queue/quick/paused", data={"paused": False})
    expect(page.get_by_role("heading", name="Why did it not run?")).to_have_count(0)
