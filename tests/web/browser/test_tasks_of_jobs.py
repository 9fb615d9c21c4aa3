"""Tasks of a bad night in at most three clicks: why is it not running, what holds a limit, and the
whole story of one job."""

import json

from playwright.sync_api import Browser, Page, expect

from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus
from tests.web.browser.clicks import Clicks
from tests.web.browser.site import Site
from tests.web.browser.window import open_window


def test_why_is_it_not_running(page: Page, site: Site) -> None:
    [job] = site.enqueue(NewJob(kind="note", queue="served-by-nobody"))
    clicks = Clicks()
    page.goto("/")
    clicks(page.locator("a.stat.pending"))
    clicks(page.locator(f"#job-{job} a[data-drawer]"))
    drawer = page.locator("#drawer")
    expect(drawer).to_contain_text("no living worker serves queue 'served-by-nobody'")
    expect(drawer).to_contain_text("forge worker APP --queues served-by-nobody")
    expect(drawer.get_by_role("heading", name="Story")).to_be_visible()
    page.request.post(f"/api/jobs/{job}/cancel")


def test_what_holds_a_limit(page: Page, site: Site) -> None:
    body = json.dumps({"host": "slow.example", "seconds": 8}).encode()
    options = {"kind": "fetch", "queue": "hosts", "payload": body, "track": True}
    limit = "task:fetch/slow.example"
    first, second = site.enqueue(*(NewJob(limit_key=limit, **options) for _ in range(2)))
    site.wait_for(1, JobStatus.RUNNING, kind="fetch")
    clicks = Clicks()
    page.goto("/")
    clicks(page.locator("a.stat.held"))
    clicks(page.locator(f"#job-{second} a[data-drawer]"))
    drawer = page.locator("#drawer")
    expect(drawer).to_contain_text(f"its limit '{limit}' is full (1 of 1")
    expect(drawer.get_by_role("heading", name="Held by")).to_be_visible()
    clicks(drawer.locator(f"a[href$='/jobs/{first}']"))
    expect(page.locator(".job[data-job]").last).to_contain_text("it runs on")


def test_the_whole_story_of_one_job(page: Page, site: Site) -> None:
    [job] = site.enqueue(
        NewJob(kind="welcome", queue="quick", payload=b'{"number":7}', max_attempts=3)
    )
    site.wait_for(1, JobStatus.DONE, kind="welcome")
    clicks = Clicks()
    page.goto("/")
    clicks(page.locator("a.stat.done"))
    clicks(page.locator(f"#job-{job} a[data-drawer]"))
    story = page.locator("#drawer section.story")
    expect(story.locator(".spans li .name")).to_contain_text(
        ["Waited", "Attempt 1 failed", "Back-off", "Attempt 2"]
    )
    clicks(story.locator("summary", has_text="Attempt 1"))
    attempt = story.locator("details[open]")
    expect(attempt).to_contain_text("ConnectionError: the line is down")
    expect(attempt).to_contain_text("greets 7")
    expect(attempt).to_contain_text("on ")
    expect(page.locator("#drawer")).to_contain_text("Made these jobs")
    expect(page.locator("#drawer .family a").first).to_have_text("note")


def test_a_copy_is_compared_with_its_original(page: Page, site: Site) -> None:
    [job] = site.enqueue(NewJob(kind="note", queue="quick", payload=b'{"number":1}'))
    page.goto(f"/jobs/{job}")
    page.get_by_text("Enqueue a copy with other data").click()
    page.get_by_label("Payload of the copy").fill('{"number": 2}')
    page.get_by_role("button", name="Enqueue the copy").click()
    page.locator(".family a", has_text="note").click()
    expect(page.locator("table.changes tbody tr")).to_have_text("number12")
    expect(page.locator("h3", has_text="Copy of")).to_be_visible()
    expect(page.locator("#payload-text .json-number")).to_have_text("2")


def test_a_story_and_its_links_without_a_script(browser: Browser, site: Site) -> None:
    [job] = site.enqueue(NewJob(kind="welcome", queue="quick", payload=b'{"number":8}'))
    site.wait_for(1, JobStatus.DONE, kind="welcome", payload='"number":8')
    with open_window(browser, site.address, java_script_enabled=False) as page:
        page.goto(f"/jobs/{job}")
        page.locator("summary", has_text="Attempt 1").first.click()
        expect(page.locator("section.story details[open]")).to_contain_text("the line is down")
        expect(page.get_by_role("button", name="Copy", exact=True).first).to_be_hidden()
        page.get_by_role("link", name="As a list").click()
        expect(page.locator("tr[id^=job-]")).to_contain_text("note")
