"""Live updates, themes, reduced motion, and the size of static files."""

import gzip
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from forge_jobs.core.job import NewJob
from tests.web.browser.site import Site
from tests.web.browser.window import open_window

ROOT = Path(__file__).resolve().parents[3]


def test_a_change_shows_soon_and_not_while_paused(page: Page, site: Site) -> None:
    page.goto("/jobs?kind=note&tag=seen")
    expect(page.locator(".empty")).to_be_visible()
    site.enqueue(NewJob(kind="note", queue="quick", tags=("seen",)))
    expect(page.locator("tr[id] .status.done")).to_have_count(1)
    page.get_by_label("Updates").select_option("off")
    site.enqueue(NewJob(kind="note", queue="quick", tags=("seen",)))
    page.wait_for_timeout(2_500)
    assert page.locator("tr[id]").count() == 1
    page.get_by_label("Updates").select_option("0")
    expect(page.locator("tr[id] .status.done")).to_have_count(2)


def test_colours_follow_the_choice_and_stay(page: Page) -> None:
    page.goto("/")
    grounds: list[str] = []
    for choice in ("dark", "light"):
        page.get_by_label("Theme").select_option(choice)
        page.reload()
        expect(page.get_by_label("Theme")).to_have_value(choice)
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] != grounds[1]


def test_reduced_motion_is_respected(browser: Browser, site: Site) -> None:
    moving = "getComputedStyle(document.querySelector('.dot.live')).animationName"
    for preference, expected in (("reduce", False), ("no-preference", True)):
        choice: Any = preference
        with open_window(browser, site.address, reduced_motion=choice) as page:
            page.goto("/queues")
            assert (page.evaluate(moving) != "none") is expected


def test_static_files_are_small() -> None:
    static = ROOT / "src" / "forge_jobs" / "web" / "static"
    files = [one for one in static.rglob("*") if one.suffix in (".js", ".css", ".svg")]
    assert len(files) >= 9
    assert sum(len(gzip.compress(one.read_bytes())) for one in files) < 150_000
