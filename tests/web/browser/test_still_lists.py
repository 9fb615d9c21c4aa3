"""A list that changes all the time stays still under a reader: clicks, ticks, scroll, focus."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect

from forge_jobs.core.job import NewJob
from tests.web.browser.site import Site

# The long version, by LONG_LISTS=1: 50 clicks and 60 s.
LONG = bool(os.environ.get("LONG_LISTS"))
CLICKS = 50 if LONG else 6
WATCHED_MS = 60_000 if LONG else 6_000
JOBS_PER_S = 500
LIST = "/jobs?tag=flood"

AIMED_AT = """() => {
  const [x, y] = window.pointerAt;
  return document.elementFromPoint(x, y).closest("tr").id;
}"""
# in one step: while the list runs, a row found by one call is gone at the next
LINK = """(number) => {
  const box = document.querySelectorAll("tr[id] th a")[number].getBoundingClientRect();
  return [box.x + 12, box.y + 6];
}"""
SHIFTS = """() => {
  window.shifted = 0;
  window.shifts = [];
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
    window.shifted += entry.value;
    entry.sources.forEach((one) => window.shifts.push(
      (one.node && one.node.outerHTML || "").slice(0, 120)));
  })).observe({ type: "layout-shift", buffered: false });
}"""


@contextmanager
def flood(site: Site) -> Iterator[None]:
    """Enqueue 500 jobs a second until the end of the block."""
    over = threading.Event()
    one = NewJob(kind="note", queue="quick", tags=("flood",))

    def feed() -> None:
        while not over.wait(0.1):
            site.enqueue(*([one] * (JOBS_PER_S // 10)))

    feeder = threading.Thread(target=feed, name="feeder")
    feeder.start()
    try:
        yield
    finally:
        over.set()
        feeder.join(30)


def first_row(page: Page) -> str:
    return page.locator("tr[id]").first.get_attribute("id") or ""


def let_go(page: Page) -> None:
    """Take pointer and focus out of the list, and wait until it changes again."""
    page.mouse.move(700, 5)
    page.evaluate("document.activeElement.blur()")
    page.evaluate("window.scrollTo(0, 0)")
    before = first_row(page)
    page.wait_for_function("before => document.querySelector('tr[id]').id !== before", arg=before)


@pytest.mark.timeout(400)
def test_clicks_hit_the_job_aimed_at_and_nothing_shifts(page: Page, site: Site) -> None:
    with flood(site):
        page.goto(LIST)
        page.wait_for_selector("tr[id] >> nth=40")
        page.evaluate(SHIFTS)
        hits = 0
        for number in range(CLICKS):
            let_go(page)
            x, y = page.evaluate(LINK, 2 + number % 8)
            page.mouse.move(x, y, steps=4)
            page.evaluate("at => { window.pointerAt = at; }", [x, y])
            aimed = page.evaluate(AIMED_AT)
            # a reader takes a moment, in which the list would have changed
            page.wait_for_timeout(1_100 if LONG or number < 2 else 100)
            page.mouse.click(x, y)
            expect(page.locator("#drawer")).to_be_visible()
            opened = page.locator("#drawer-body .job").get_attribute("data-job")
            hits += aimed == f"job-{opened}"
            page.keyboard.press("Escape")
        assert hits == CLICKS
        page.mouse.move(700, 5)
        page.evaluate("document.activeElement.blur()")
        page.wait_for_timeout(WATCHED_MS)
        shifted = page.evaluate("window.shifted")
        assert shifted < 0.05, (shifted, page.evaluate("window.shifts.slice(-12)"))


def test_ticks_stay_and_new_rows_wait_behind_their_button(page: Page, site: Site) -> None:
    with flood(site):
        page.goto(LIST)
        page.wait_for_selector("tr[id] >> nth=40")
        page.locator("tr[id] input[name=ids]").nth(3).check()
        page.locator("tr[id] input[name=ids]").nth(5).check()
        ticked = page.evaluate(
            "[...document.querySelectorAll('input[name=ids]:checked')].map(e => e.value)"
        )
        page.mouse.move(700, 5)
        fresh = page.locator("#fresh")
        expect(fresh).to_contain_text("new")
        top = first_row(page)
        page.wait_for_timeout(1_500)
        assert first_row(page) == top
        fresh.click()
        expect(page.locator("tr[id]").first).not_to_have_id(top)
        still = page.evaluate(
            "[...document.querySelectorAll('input[name=ids]:checked')].map(e => e.value)"
        )
        assert still == ticked
        expect(page.locator("#chosen")).to_have_text("2 chosen")


def test_a_reader_who_scrolled_or_has_the_focus_keeps_the_rows(page: Page, site: Site) -> None:
    with flood(site):
        page.goto(LIST)
        page.wait_for_selector("tr[id] >> nth=40")
        page.mouse.move(700, 5)
        page.evaluate("window.scrollTo(0, 400)")
        top = first_row(page)
        expect(page.locator("#fresh")).to_contain_text("new")
        assert first_row(page) == top
        assert page.evaluate("window.scrollY") == 400
        let_go(page)
        page.locator("tr[id] th a").nth(4).focus()
        page.wait_for_timeout(100)
        focused = page.evaluate("document.activeElement.closest('tr').id")
        expect(page.locator("#fresh")).to_contain_text("new")
        assert page.evaluate("document.activeElement.closest('tr').id") == focused
