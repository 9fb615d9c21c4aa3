"""Tasks of a bad night in at most three clicks: what failed in the last hour, grouped; retry one
kind since a deploy. And the life of a group on its pages."""

import json
import re

from playwright.sync_api import Page, expect

from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus
from forge_jobs.store.worker_versions import record_version
from tests.web.browser.clicks import Clicks
from tests.web.browser.site import Site

TITLE = "no mailbox for <email>"
VERSION = "2.0 of a test"


def failing(site: Site, jobs: int, tag: str) -> list[str]:
    """Jobs that die of one cause; at the second run they succeed."""
    addresses = [f"{tag}-{n}@mail.example" for n in range(jobs)]
    ids = site.enqueue(
        *(
            NewJob(
                kind="send", queue="mail", max_attempts=1, tags=(tag,),
                payload=json.dumps({"to": address}).encode(),
            )
            for address in addresses
        )
    )  # fmt: skip
    site.wait_for(jobs, JobStatus.DEAD, tag=tag)
    return ids


def test_what_failed_in_the_last_hour_grouped(page: Page, site: Site) -> None:
    ids = failing(site, 2, "hour")
    clicks = Clicks()
    page.goto("/")
    clicks(page.get_by_role("link", name=re.compile("error groups? in the last hour")))
    row = page.get_by_role("row").filter(has_text=TITLE)
    expect(row).to_contain_text("site.py in send")
    expect(row).to_contain_text("open")
    clicks(row.get_by_role("link", name=TITLE, exact=True))
    expect(page.locator(".traceback pre")).to_contain_text("no mailbox for")
    expect(page.get_by_role("table")).to_contain_text(ids[-1][-8:])
    clicks(page.get_by_role("link", name="Its jobs", exact=True))
    expect(page.locator(f"#job-{ids[0]}")).to_be_visible()


def test_retry_one_kind_since_a_deploy(page: Page, site: Site) -> None:
    failing(site, 1, "before")
    site.run_on_store(lambda store: record_version(store.settings, VERSION))
    failing(site, 1, "after")
    clicks = Clicks()
    page.goto("/")
    clicks(page.get_by_role("link", name="Errors", exact=True))
    clicks(page.get_by_role("link", name=f"Retry send since {VERSION}"))
    expect(page.locator(".reach")).to_have_text("1")
    clicks(page.get_by_role("button", name="Retry 1"))
    expect(page.locator("#notices")).to_contain_text("1 back in line")
    site.wait_for(1, JobStatus.DONE, tag="after")
    site.wait_for(1, JobStatus.DEAD, tag="before")


def test_a_group_is_resolved_and_returns(page: Page, site: Site) -> None:
    [lost] = failing(site, 1, "returning")
    page.goto(f"/jobs/{lost}")
    page.get_by_role("link", name="Failures like this", exact=True).click()
    page.get_by_role("button", name="Resolve").click()
    expect(page.locator("#notices")).to_contain_text("flagged when it is seen again")
    expect(page.get_by_role("button", name="Reopen")).to_be_visible()
    failing(site, 1, "returned")
    page.goto("/errors?state=returned")
    row = page.get_by_role("row").filter(has_text=TITLE)
    expect(row).to_contain_text("returned")
    row.get_by_role("button", name="Resolve").click()
    expect(row).to_have_count(0)
