"""Tasks of a bad night in at most three clicks: now against yesterday, do workers keep up, which
jobs made this spike."""

import re
import sqlite3
from datetime import UTC, datetime

import msgspec
from playwright.sync_api import Browser, Page, expect

from forge_jobs.core.counters import Minute
from forge_jobs.core.instant import MINUTE
from forge_jobs.core.job import NewJob
from tests.web.browser.clicks import Clicks
from tests.web.browser.site import Site
from tests.web.browser.window import open_window

DAY = 1_440 * MINUTE


def store_minute(site: Site, ago: int, queue: str, enqueued: int) -> None:
    """Write a minute of the past into the database of the site."""
    now = site.run_on_store(lambda store: store.now())
    at = now // MINUTE * MINUTE - ago
    minute = Minute(at=at, queue=queue, kind="note", enqueued=enqueued, started=enqueued, done=5)
    row = (at, queue, "note", msgspec.json.encode(minute).decode())
    with sqlite3.connect(site.url.removeprefix("sqlite:///")) as connection:
        connection.execute("INSERT INTO forge_minutes VALUES (?, ?, ?, ?)", row)
    connection.close()


def test_now_against_yesterday(page: Page, site: Site) -> None:
    store_minute(site, 3 * MINUTE, "compared", 12)
    store_minute(site, DAY + 3 * MINUTE, "compared", 8)
    clicks = Clicks()
    page.goto("/?queue=compared")
    clicks(page.get_by_role("link", name="vs. yesterday"))
    expect(page.locator(".rangebar")).to_contain_text("12 enqueued (yesterday 8: 50 % more)")
    expect(page.locator(".rangebar")).to_contain_text("5 done (yesterday 5: the same)")
    expect(page.locator("#plot-flow .u-legend")).to_contain_text("enqueued, yesterday")
    expect(page.get_by_role("link", name="vs. yesterday")).to_have_attribute("aria-current", "true")


def test_are_workers_keeping_up(page: Page, site: Site) -> None:
    site.enqueue(*(NewJob(kind="wait", queue="slow") for _ in range(6)))
    clicks = Clicks()
    page.goto("/")
    clicks(page.get_by_role("link", name="Are they keeping up?"))
    row = page.locator("#q-slow")
    expect(row).to_contain_text("falling behind")
    expect(row).to_contain_text("2 / 2")
    expect(row).to_contain_text("never at this rate")
    clicks(row.get_by_role("link", name="slow"))
    expect(page.locator(".rangebar")).to_contain_text("Charts of queue slow")
    expect(page.locator("#plot-unfinished canvas")).to_be_visible()


def test_a_click_on_a_point_lists_its_jobs(page: Page, site: Site) -> None:
    [first, *_] = site.enqueue(NewJob(kind="note", queue="quick", tags=("spike",)))
    clicks = Clicks()
    page.goto("/?range=5m&queue=quick")
    expect(page.locator("#plot-flow .u-legend")).to_contain_text("so far")
    drawn = page.locator("#plot-flow .u-over")
    box = drawn.bounding_box()
    assert box is not None
    clicks(drawn, position={"x": box["width"] - 4, "y": 20})
    page.wait_for_url(re.compile("/jobs.*from=.*until="))
    assert "queue=quick" in page.url
    expect(page.locator(f"#job-{first}")).to_be_visible()


def test_points_and_their_jobs_without_a_script(browser: Browser, site: Site) -> None:
    [first, *_] = site.enqueue(NewJob(kind="note", queue="quick"))
    clicks = Clicks()
    with open_window(browser, site.address, java_script_enabled=False) as page:
        page.goto("/?range=5m&queue=quick")
        clicks(page.get_by_role("link", name="Points and their jobs"))
        newest = page.locator(".timeline tbody tr").first
        expect(newest).to_contain_text("so far")
        clicks(newest.get_by_role("rowheader").get_by_role("link"))
        expect(page.locator(f"#job-{first}")).to_be_visible()
        assert datetime.now(UTC).strftime("from=%Y-%m-%dT") in page.url
