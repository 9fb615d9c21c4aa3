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
    files = [one for one in static.rglob("*") if one.suffix in (".js", ".css", ".svg", ".woff2")]
    assert len(files) >= 12
    assert sum(len(gzip.compress(one.read_bytes())) for one in files) < 250_000


def test_every_file_of_a_page_is_cached_for_a_year(page: Page) -> None:
    responses: dict[str, str] = {}
    page.on(
        "response",
        lambda one: (
            responses.update({one.url: one.headers.get("cache-control", "")})
            if "/static/" in one.url
            else None
        ),
    )
    page.goto("/jobs")
    page.evaluate("document.fonts.ready.then(() => null)")
    assert any("inter-latin" in url for url in responses)
    assert len(responses) >= 12
    assert set(responses.values()) == {"public, max-age=31536000, immutable"}


def test_figures_are_as_wide_as_each_other(page: Page) -> None:
    page.goto("/jobs")
    widths = page.evaluate("""async () => {
      await document.fonts.load('16px "Inter Variable"');
      return ["1111", "0000"].map((text) => {
        const one = document.createElement("span");
        one.className = "number";
        one.style.position = "absolute";
        one.style.fontFamily = '"Inter Variable"';
        one.textContent = text;
        document.body.append(one);
        return one.getBoundingClientRect().width;
      });
    }""")
    assert widths[0] == widths[1]


def test_times_are_in_one_zone_of_the_readers_choice(browser: Browser, site: Site) -> None:
    (job,) = site.enqueue(NewJob(kind="note", queue="quick", tags=("zoned",)))
    with open_window(browser, site.address, timezone_id="Asia/Tokyo") as page:
        page.goto("/jobs?tag=zoned")
        time = page.locator(f"#job-{job} time")
        local = time.get_attribute("title") or ""
        page.get_by_label("Times in").select_option("utc")
        utc = time.get_attribute("title") or ""
        assert utc.endswith(" UTC")
        assert utc[:10] in (time.get_attribute("datetime") or "")
        hours = (int(local[11:13]) - int(utc[11:13])) % 24
        assert hours == 9
        assert (time.get_attribute("data-beside") or "")[:2] == utc[11:13]
        page.goto("/")
        expect(page.get_by_label("Times in")).to_have_value("utc")
        page.get_by_label("Times in").select_option("server")
        assert (page.locator("time").first.get_attribute("title") or "").endswith("server time")


def test_an_outage_moves_nothing(page: Page) -> None:
    page.goto("/jobs")
    page.wait_for_selector("#fresh", state="attached")
    top = page.locator("main").bounding_box()
    page.evaluate("""() => {
      const banner = document.getElementById("trouble");
      banner.textContent = "No answer from Mission Control: trying again.";
      banner.hidden = false;
    }""")
    expect(page.locator("#trouble")).to_be_visible()
    assert page.locator("main").bounding_box() == top


def test_an_error_page_keeps_the_navigation(browser: Browser, site: Site) -> None:
    # without the listener for the console, which names the 404
    context = browser.new_context(base_url=site.address)
    page = context.new_page()
    for path in ("/jobs/00000000000000000000000000", "/nowhere"):
        response = page.goto(path)
        assert response is not None
        assert response.status == 404
        expect(page.get_by_role("heading", name="There is no such thing")).to_be_visible()
        expect(page.get_by_role("navigation").get_by_role("link", name="Dead")).to_be_visible()
    context.close()
