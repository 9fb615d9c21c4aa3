"""The query line of lists: one job by an argument's value, completion, errors, and the form."""

import json
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, expect

from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus
from tests.web.browser.clicks import Clicks
from tests.web.browser.site import Site


def note(tag: str, **payload: object) -> NewJob:
    return NewJob(
        kind="note", queue="quick", delay_s=3_600, tags=(tag,), payload=json.dumps(payload).encode()
    )


def query_of(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_one_job_is_found_by_an_arguments_value(page: Page, site: Site) -> None:
    wanted, _ = site.enqueue(
        note("by-value", to="Ann@Example.com", number=4), note("by-value", to="bob@example.com")
    )
    click = Clicks()
    page.goto("/")
    click(page.get_by_role("navigation", name="Pages").get_by_role("link", name="Jobs", exact=True))
    page.get_by_label("Query").fill("kind:note to:ann@")
    click(page.get_by_role("button", name="Filter", exact=True).first)
    expect(page.locator("tr[id]")).to_have_count(1)
    expect(page.locator("tr[id] .arguments")).to_contain_text("Ann@Example.com")
    click(page.locator("tr[id] th a"))
    expect(page.locator("#drawer-body .job")).to_have_attribute("data-job", wanted)


def test_the_line_is_completed_by_keys(page: Page) -> None:
    page.goto("/jobs")
    line = page.get_by_label("Query")
    line.press_sequentially("ki")
    line.press("Tab")
    expect(line).to_have_value("kind:")
    line.press_sequentially("gift")
    expect(page.locator("#completions li")).to_have_text("kind:gift_wrap")
    line.press("ArrowDown")
    line.press("Enter")
    expect(line).to_have_value("kind:gift_wrap ")
    line.press("Enter")
    page.wait_for_url("**/jobs?query=kind%3Agift_wrap*")


def test_a_mistake_is_named_and_the_line_stays(page: Page) -> None:
    page.goto("/jobs?query=qeue:mail+since:1h")
    expect(page.get_by_role("alert").filter(visible=True)).to_contain_text("did you mean queue:?")
    expect(page.get_by_label("Query")).to_have_value("qeue:mail since:1h")
    page.goto("/dead?query=status:failed")
    expect(page.get_by_role("alert").filter(visible=True)).to_contain_text("list of dead jobs")


def test_form_and_line_show_the_same_and_drop_nothing(page: Page, site: Site) -> None:
    site.enqueue(note("formed", to="ann@example.com"))
    site.wait_for(1, JobStatus.SCHEDULED, tag="formed")
    page.goto("/jobs?from=2020-01-01&status=scheduled&query=tag:formed+to:ann")
    expect(page.locator("tr[id]")).to_have_count(1)
    page.get_by_text("Filter by fields").click()
    form = page.get_by_role("form", name="Filter jobs by fields")
    expect(form.get_by_label("Since")).to_have_value("2020-01-01")
    expect(form.get_by_label("Tag")).to_have_value("formed")
    expect(form.get_by_label("Arguments")).to_have_value("to:ann")
    form.get_by_label("Kind").fill("note")
    form.get_by_role("button", name="Filter").click()
    expect(page.get_by_label("Query")).to_have_value("kind:note tag:formed since:2020-01-01 to:ann")
    assert query_of(page)["status"] == ["scheduled"]
    page.get_by_role("button", name="Filter", exact=True).first.click()
    expect(page.locator("tr[id]")).to_have_count(1)
    assert query_of(page) == {
        "status": ["scheduled"],
        "query": ["kind:note tag:formed since:2020-01-01 to:ann"],
    }


def test_the_drawer_is_in_the_address_and_an_id_of_8_characters_finds_its_job(
    page: Page, site: Site
) -> None:
    (first, second) = site.enqueue(note("drawn", n=1), note("drawn", n=2))
    drawer = page.locator("#drawer")
    body = page.locator("#drawer-body .job")
    page.goto("/jobs?query=tag:drawn")
    page.locator(f"#job-{first} th a").click()
    expect(body).to_have_attribute("data-job", first)
    assert query_of(page) == {"query": ["tag:drawn"], "job": [first]}
    page.reload()
    expect(body).to_have_attribute("data-job", first)
    page.go_back()
    expect(drawer).not_to_be_visible()
    page.go_forward()
    expect(body).to_have_attribute("data-job", first)
    page.keyboard.press("Escape")
    expect(drawer).not_to_be_visible()
    page.wait_for_url("**/jobs?query=tag:drawn")
    page.get_by_label("Query").fill(second[-8:].lower())
    page.get_by_label("Query").press("Enter")
    expect(page.locator("tr[id]")).to_have_count(1)
    expect(page.locator(f"#job-{second}")).to_be_visible()
    page.goto(f"/jobs/{first[-8:]}")
    expect(page.locator(".lead code")).to_have_text(first)
