"""Charts: zoom, crosshair, pin, keys, tables; by mouse and without one."""

from playwright.sync_api import Page, expect

from forge_jobs.core.job import NewJob
from tests.web.browser.site import Site


def at(page: Page, chart: str) -> str:
    """The time of the crosshair in the legend of a chart."""
    return page.locator(f"#plot-{chart} .u-legend .u-value").first.text_content() or ""


def settled(page: Page) -> None:
    """Wait until all points are read, then pause updates so that no new minute shifts them."""
    expect(page.locator("#flow-title")).not_to_contain_text("reading the rest")
    page.get_by_label("Updates").select_option("off")


def point(page: Page, share: float, chart: str = "flow") -> None:
    """Move the mouse to that part of a chart."""
    plot = page.locator(f"#plot-{chart} .u-over")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * share, box["y"] + 40, steps=3)


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
    settled(page)
    newest = at(page, "ran")
    point(page, 0.25)
    expect(page.locator("#plot-ran .u-legend .u-value").first).not_to_have_text(newest)
    assert at(page, "flow") == at(page, "waited") == at(page, "ran")
    page.locator("#figures-flow summary").click()
    table = page.locator("#figures-flow table")
    expect(table.locator("thead th")).to_have_text(["at", "enqueued", "done", "retried", "dead"])
    expect(table.locator("tbody tr")).to_have_count(5)


def test_a_click_pins_the_crosshair_of_all_charts(page: Page, site: Site) -> None:
    page.goto("/?range=5m")
    point(page, 0.25, "ran")
    page.mouse.down()
    page.mouse.up()
    expect(page.locator("#plot-flow .pinned")).to_be_visible()
    pinned = at(page, "flow")
    point(page, 0.75, "ran")
    page.mouse.move(5, 5)
    # after a live change the pin stays at its time
    site.enqueue(NewJob(kind="note", queue="quick", tags=("pinned",)))
    drawn = page.locator("#chart-flow")
    before = drawn.get_attribute("data-chart")
    expect(drawn).not_to_have_attribute("data-chart", before or "")
    assert [at(page, name) for name in ("flow", "waited", "ran")] == [pinned] * 3
    point(page, 0.5, "ran")
    page.mouse.down()
    page.mouse.up()
    expect(page.locator(".pinned")).to_have_count(0)


def test_keys_read_a_chart_and_zoom_into_it(page: Page) -> None:
    page.goto("/?range=1h")
    settled(page)
    chart = page.get_by_role("slider", name="Jobs: enqueued, done, retried, dead")
    chart.focus()
    page.keyboard.press("Home")
    first = chart.get_attribute("aria-valuetext") or ""
    assert "enqueued" in first
    assert chart.get_attribute("aria-valuenow") == "0"
    page.keyboard.press("ArrowRight")
    expect(chart).to_have_attribute("aria-valuenow", "1")
    expect(page.locator("#plot-ran .pinned")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".pinned")).to_have_count(0)
    page.keyboard.press("Home")
    for _ in range(6):
        page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_url("**from=**until=**")
    expect(page.get_by_role("link", name="Reset zoom")).to_be_visible()


def test_links_zoom_and_shift_without_a_mouse(page: Page) -> None:
    page.goto("/?range=1h&queue=mail")
    for name in ("Closer", "Earlier", "Wider", "Later"):
        before = page.url
        page.get_by_role("link", name=name).click()
        page.wait_for_url(lambda url, was=before: url != was)
        assert "queue=mail" in page.url
    page.get_by_role("link", name="Reset zoom").click()
    expect(page.get_by_role("link", name="Reset zoom")).to_have_count(0)


def test_a_queue_has_charts_of_its_own(page: Page, site: Site) -> None:
    site.enqueue(NewJob(kind="note", queue="quick"))
    page.goto("/queues")
    card = page.locator("#q-quick")
    expect(card.locator("svg.spark")).to_be_visible()
    page.get_by_role("link", name="Charts of quick").click()
    page.wait_for_url("**queue=quick**")
    expect(page.locator(".rangebar")).to_contain_text("in queue quick")
    expect(page.locator("#plot-flow canvas")).to_be_visible()


def test_the_health_page_shows_the_database(page: Page, site: Site) -> None:
    page.goto("/health")
    expect(page.locator(".gauges .total")).to_contain_text("iB")
    for name in ("answers", "exchanges"):
        expect(page.locator(f"#plot-{name} canvas")).to_be_visible()
