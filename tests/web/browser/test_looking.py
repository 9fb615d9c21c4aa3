"""Looking around: charts, live changes, colours, keys."""

import gzip
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from forge_jobs.core.job import NewJob
from tests.web.browser.site import Site
from tests.web.browser.window import open_window

ROOT = Path(__file__).resolve().parents[3]


def test_a_drag_zooms_and_a_click_goes_back(page: Page) -> None:
    page.goto("/?range=1h")
    plot = page.locator("#plot-flow .u-over")
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 40, steps=4)
    page.mouse.up()
    page.wait_for_url("**from=**until=**")
    expect(page.get_by_role("link", name="Reset zoom")).to_be_visible()
    page.get_by_role("link", name="Reset zoom").click()
    expect(page.get_by_role("link", name="Reset zoom")).to_have_count(0)


def test_the_crosshair_is_shared_and_charts_are_tables_too(page: Page, site: Site) -> None:
    site.enqueue(NewJob(kind="note", queue="quick"))
    page.goto("/?range=5m")
    page.locator("#plot-flow .u-over").hover()
    for name in ("flow", "waited", "ran"):
        expect(page.locator(f"#plot-{name} .u-legend .u-value").first).to_contain_text(":")
    page.locator("#figures-flow summary").click()
    table = page.locator("#figures-flow table")
    expect(table.locator("thead th")).to_have_text(["at", "enqueued", "done", "retried", "dead"])
    expect(table.locator("tbody tr")).to_have_count(5)


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


def test_reduced_motion_is_kept(browser: Browser, site: Site) -> None:
    moving = "getComputedStyle(document.querySelector('.dot.live')).animationName"
    for wish, expected in (("reduce", False), ("no-preference", True)):
        choice: Any = wish
        with open_window(browser, site.address, reduced_motion=choice) as page:
            page.goto("/queues")
            assert (page.evaluate(moving) != "none") is expected


def test_the_keyboard_alone_finds_and_retries_a_job(page: Page, site: Site) -> None:
    (lost,) = site.enqueue(NewJob(kind="send", queue="mail", payload=b'{"to": "k@example.com"}'))
    keys = page.keyboard
    page.goto("/")
    page.wait_for_function("window.forge")
    keys.press("g")
    keys.press("d")
    page.wait_for_url("**/dead")
    expect(page.locator(f"#job-{lost}")).to_be_visible()
    keys.press("/")
    keys.type("send")
    keys.press("Enter")
    page.wait_for_url("**kind=send**")
    expect(page.locator(f"#job-{lost}")).to_be_visible()
    keys.press("j")
    expect(page.locator("tr.current")).to_have_id(f"job-{lost}")
    keys.press("x")
    expect(page.locator("tr.current input")).to_be_checked()
    keys.press("Enter")
    expect(page.locator("#drawer .card.bad")).to_contain_text("k@example.com")
    page.locator("#drawer").get_by_role("button", name="Retry").focus()
    keys.press("Enter")
    expect(page.locator("#drawer .lead .status")).to_have_text("done")
    keys.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    keys.press("Control+k")
    keys.type("health")
    keys.press("Enter")
    page.wait_for_url("**/health")


def test_what_is_served_is_small() -> None:
    static = ROOT / "src" / "forge_jobs" / "web" / "static"
    files = [one for one in static.rglob("*") if one.suffix in (".js", ".css", ".svg")]
    assert len(files) >= 9
    assert sum(len(gzip.compress(one.read_bytes())) for one in files) < 150_000
