"""Tasks of a bad night in at most three clicks: which tenant is noisy, which task is slow."""

from playwright.sync_api import Page, expect

from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus
from tests.web.browser.clicks import Clicks
from tests.web.browser.site import Site
from tests.web.browser.window import open_window

LOUD = "tenant:loud / né?&#%"


def run_tagged(site: Site, tag: str, jobs: int) -> None:
    site.enqueue(*(NewJob(kind="note", queue="quick", tags=(tag,)) for _ in range(jobs)))
    site.wait_for(jobs, JobStatus.DONE, tag=tag)


def test_which_tenant_is_noisy_and_what_stops_it(page: Page, site: Site) -> None:
    run_tagged(site, "tenant:calm", 1)
    run_tagged(site, LOUD, 40)
    clicks = Clicks()
    page.goto("/")
    clicks(page.get_by_role("link", name="Tags", exact=True))
    clicks(page.locator(".breakdown tbody th a", has_text="tenant:").first)
    expect(page.get_by_role("heading", level=1)).to_have_text(LOUD)
    row = page.locator("#part-1")
    expect(row).to_contain_text("note")
    expect(row).to_contain_text("quick")
    clicks(row.get_by_role("button", name="Pause quick"))
    expect(page.locator("#notices")).to_contain_text("queue quick is paused")
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Resume quick").click()
    expect(row.get_by_role("button", name="Pause quick")).to_be_visible()


def test_a_task_and_its_limit(page: Page, site: Site) -> None:
    run_tagged(site, "tenant:slow", 3)
    clicks = Clicks()
    page.goto("/")
    clicks(page.get_by_role("link", name="Tasks", exact=True))
    row = page.locator("#task-note")
    expect(row.locator("svg.spark")).to_be_visible()
    clicks(row.get_by_role("link", name="note"))
    expect(page.get_by_role("img", name="Run times of")).to_be_visible()
    limits = page.locator("#limit")
    limits.get_by_label("At once").fill("7")
    clicks(limits.get_by_role("button", name="Limit"))
    expect(page.locator("#notices")).to_contain_text("limit task:note is set")
    expect(limits).to_contain_text("7 at once")
    site.run_on_store(lambda store: store.limits.reset("task:note"))


def test_columns_sort_without_a_script(page: Page, site: Site) -> None:
    run_tagged(site, "tenant:sorted", 1)
    browser = page.context.browser
    assert browser is not None
    with open_window(browser, site.address, java_script_enabled=False) as plain:
        plain.goto("/tasks")
        plain.get_by_role("link", name="Backlog").click()
        expect(plain.locator("th[aria-sort=descending]")).to_have_text("Backlog")
        plain.get_by_role("link", name="By queue").click()
        expect(plain.locator("#task-quick")).to_be_visible()
        plain.get_by_role("link", name="24h").click()
        expect(plain.locator("#task-quick")).to_be_visible()
