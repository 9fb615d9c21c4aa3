"""A workflow in a real browser: watched waiting, sent on, retried from a step."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus
from forge_jobs.core.steps import StepKind, StepRecord
from forge_jobs.web import Role
from tests.web.browser.site import Site
from tests.web.browser.test_every_page import AXE, PICTURES, violations
from tests.web.browser.window import as_role, open_window

_NUMBERS = count(1)


def start_order(site: Site) -> tuple[str, str]:
    """The id and the number of a new order."""
    number = next(_NUMBERS)
    body = json.dumps({"number": number}).encode()
    (order,) = site.enqueue(NewJob(kind="order", queue="orders", payload=body, max_attempts=1))
    return order, str(number)


def row(page: Page, name: str) -> Any:
    return page.locator(".waterfall li").filter(
        has=page.locator(".name", has_text=name).get_by_text(name, exact=True)
    )


def test_an_order_is_watched_waiting_sent_on_and_retried_from_a_step(
    page: Page, site: Site
) -> None:
    order, number = start_order(site)
    page.goto(f"/jobs/{order}")
    expect(page.locator(".lead .status")).to_have_text("suspended")
    reason = page.locator("#why-title + .reasons")
    expect(reason).to_contain_text(f"the event 'paid' with the key '{number}'")
    expect(reason).to_contain_text(f"forge send cancelled --key {number}")
    expect(page.locator(".waterfall li")).to_have_count(8)
    expect(page.locator(".waterfall li").last).to_contain_text("waits")
    charge = row(page, "charge")
    charge.locator("summary").click()
    expect(charge.locator(".value")).to_contain_text('"password": "***"')
    form = page.locator("form.fields").filter(has=page.get_by_role("button", name="Send paid"))
    expect(form.get_by_label("Key")).to_have_value(number)
    form.get_by_label("Payload (JSON)").fill('{"in": "sand"}')
    form.get_by_role("button", name="Send paid").click()
    expect(page.locator("#notices")).to_contain_text("1 job resumed")
    expect(page.locator(".lead .status")).to_have_text("dead")
    expect(page.locator(".waterfall li")).to_have_count(9)
    # the value that was fetched is still there after live updates
    expect(charge.locator(".value")).to_contain_text('"password": "***"')
    waited = row(page, "wait:paid|cancelled")
    waited.locator("summary").click()
    waited.get_by_role("button", name="Retry from here").click()
    expect(page.locator("#confirm-command")).to_contain_text(f"forge jobs retry {order} --from")
    page.locator("#confirm").get_by_role("button", name="Retry from here").click()
    expect(page.locator("#notices")).to_contain_text("2 steps run again, 7 are kept")


def test_suspended_jobs_are_found_by_event_and_key(page: Page, site: Site) -> None:
    order, number = start_order(site)
    site.wait_for_event("cancelled", number)
    page.goto("/suspended")
    page.get_by_role("textbox", name="Event").fill("cancelled")
    page.get_by_role("textbox", name="Key").fill(number)
    page.get_by_role("button", name="Find").click()
    lines = page.locator("tbody tr")
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text(order[-8:])
    lines.locator("a[data-drawer]").click()
    expect(page.locator("#drawer")).to_contain_text("Why is it not running?")
    drawer = page.locator("#drawer")
    drawer.get_by_role("button", name="Send cancelled").click()
    expect(drawer.locator(".lead .status")).to_have_text("done")
    page.goto("/suspended?key=1")
    expect(page.get_by_text("give its name too")).to_be_visible()


def test_a_viewer_sees_steps_and_no_forms(browser: Browser, site: Site) -> None:
    order, number = start_order(site)
    site.wait_for_event("paid", number)
    options = {"extra_http_headers": as_role(Role.VIEWER)}
    with open_window(browser, site.staff_address, **options) as page:
        page.goto(f"/jobs/{order}")
        expect(page.locator(".waterfall li")).to_have_count(8)
        expect(page.get_by_role("button", name="Send paid")).to_have_count(0)
        row(page, "charge").locator("summary").click()
        expect(row(page, "charge").locator(".value")).to_contain_text("***")


def test_many_steps_come_page_by_page(page: Page, site: Site) -> None:
    order, number = start_order(site)
    site.wait_for_event("paid", number)

    async def many(*_: object, **options: Any) -> list[StepRecord]:
        after = int(str(options.get("after") or "s-1")[1:])
        chosen = range(after + 1, min(after + 1 + options["limit"], 10_000))
        begins = [1_700_000_000_000_000 + number * 1_000 for number in chosen]
        return [
            StepRecord(f"s{number:05}", StepKind.STEP, 1, at, at + 900, size=2)
            for number, at in zip(chosen, begins, strict=True)
        ]

    store = site.run_on_store(_itself)
    kept = store.steps.page
    store.steps.page = many  # type: ignore[method-assign]
    try:
        page.goto(f"/jobs/{order}?steps=9950")
        expect(page.locator("#steps-title")).to_contain_text("10,001")
        expect(page.locator(".waterfall li")).to_have_count(51)
        page.get_by_role("link", name="Earlier steps").click()
        expect(page.locator(".waterfall li")).to_have_count(100)
        expect(page.locator(".waterfall .name").first).to_have_text("s09850")
    finally:
        store.steps.page = kept  # type: ignore[method-assign]


async def _itself(store: Any) -> Any:
    return store


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_steps_that_the_last_version_does_not_call_are_marked(
    browser: Browser, site: Site, colours: Any
) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    body = json.dumps({"number": next(_NUMBERS)}).encode()
    (wrap,) = site.enqueue(NewJob(kind="gift_wrap", queue="orders", payload=body, max_attempts=3))
    with open_window(browser, site.address, color_scheme=colours, bypass_csp=True) as page:
        page.goto(f"/jobs/{wrap}")
        page.add_script_tag(path=AXE)
        expect(page.locator(".lead .status")).to_have_text("done")
        expect(page.locator("#steps-title")).to_contain_text("3 not used")
        unused = page.locator(".waterfall li.unused")
        expect(unused.locator(".name > span:first-child")).to_have_text(
            ["choose paper", "gift", "let the glue dry"]
        )
        expect(page.locator(".waterfall li")).to_have_count(6)
        unused.first.locator("summary").click()
        expect(unused.first).to_contain_text("its code no longer calls it")
        expect(unused.first.locator(".value")).to_contain_text("paper is ready")
        see(page, f"unused-{colours}")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_waterfall_passes_axe_and_has_its_pictures(
    browser: Browser, site: Site, colours: Any
) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    order, number = start_order(site)
    site.wait_for_event("paid", number)
    with open_window(browser, site.address, color_scheme=colours, bypass_csp=True) as page:
        page.goto(f"/jobs/{order}")
        page.add_script_tag(path=AXE)
        see(page, f"order-waiting-{colours}")
        site.forge.send("paid", {"in": "sand"}, key=number)
        expect(page.locator(".lead .status")).to_have_text("dead")
        row(page, "charge").locator("summary").click()
        expect(row(page, "charge").locator(".value")).to_contain_text("***")
        see(page, f"order-dead-{colours}")
        page.get_by_role("button", name="Delete").click()
        page.locator("#confirm").get_by_role("button", name="Delete").click()
        site.wait_for(0, JobStatus.DEAD, queue="orders", error=f"order {number} ")


def see(page: Page, name: str) -> None:
    """A whole screenshot at two widths, without axe violations and without scrolling sideways."""
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=Path(PICTURES) / f"{name}-{width}.png", full_page=True)
        assert violations(page) == [], f"{name} at {width}"
