"""Bulk actions: typed confirmation above a size, progress, and stopping."""

from playwright.sync_api import Browser, Page, expect

from forge_jobs.core.status import JobStatus
from forge_jobs.web import Role
from tests.web.browser.bulk import MANY, delete_many, enqueue_many, start_slow_operation
from tests.web.browser.site import Site
from tests.web.browser.window import as_role, open_window


def test_many_jobs_are_deleted_only_after_typing_the_action(page: Page, site: Site) -> None:
    enqueue_many(site, "typed")
    page.goto("/scheduled?tag=typed")
    page.get_by_label(f"all {MANY} matching").check()
    page.get_by_role("button", name="Delete").click()
    preview = page.locator("#bulk")
    expect(preview.locator(".reach")).to_have_text(f"{MANY}")
    word, yes = preview.get_by_label("Type delete to go on"), preview.locator("button.strong")
    for wrong in ("", "retry", "DELETE IT"):
        word.fill(wrong)
        yes.click()
        expect(preview).to_be_visible()
    assert site.count(JobStatus.SCHEDULED, tag="typed") == MANY
    word.fill("delete")
    yes.click()
    expect(page.locator("#notices")).to_contain_text(f"{MANY} deleted")
    site.wait_for(0, JobStatus.SCHEDULED, tag="typed")


def test_the_server_requires_the_typed_action_too(page: Page, site: Site) -> None:
    enqueue_many(site, "refused")
    asked = {"all": "yes", "status": "scheduled", "tag": "refused"}
    for wrong in ({}, {"typed": "retry"}):
        answer = page.request.post("/act/jobs/delete", form={**asked, **wrong})
        assert not answer.ok
        assert "type delete to do it" in answer.text()
    assert site.count(JobStatus.SCHEDULED, tag="refused") == MANY
    delete_many(site, "refused")


def test_a_bulk_operation_shows_its_progress_and_stops(browser: Browser, site: Site) -> None:
    enqueue_many(site, "long")

    begun = start_slow_operation(site, "long")
    banner = f"#operation-{begun.id}"
    with open_window(
        browser, site.staff_address, extra_http_headers=as_role(Role.VIEWER)
    ) as looking:
        looking.goto("/jobs?tag=long")
        expect(looking.locator(banner)).to_contain_text(f"of {MANY}")
        expect(looking.locator(banner).get_by_role("button")).to_have_count(0)
    with open_window(browser, site.staff_address, extra_http_headers=as_role(Role.ADMIN)) as page:
        page.goto("/jobs?tag=long")
        going = page.locator(banner)
        bar = going.get_by_role("progressbar")
        expect(going).to_contain_text("Cancel: ")
        before = bar.get_attribute("value") or ""
        expect(bar).not_to_have_attribute("value", before)
        going.get_by_role("button", name="Stop").click()
        expect(page.locator("#notices")).to_contain_text("it stops after this step")
        expect(going).to_have_count(0)
    assert site.count(JobStatus.SCHEDULED, tag="long") == MANY
    delete_many(site, "long")
