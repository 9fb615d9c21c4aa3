"""Every page in both themes and three widths: accessible (axe), without console errors; screenshots
are saved."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from forge_jobs.core.job import NewJob
from forge_jobs.core.status import JobStatus
from forge_jobs.web import Role
from tests.web.browser.bulk import delete_many, enqueue_many, start_slow_operation
from tests.web.browser.site import Site
from tests.web.browser.window import PAGES, as_role, open_window
from tests.web.harness import serve_on_socket, web_harness

ROOT = Path(__file__).resolve().parents[3]
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = ROOT / "artifacts" / "pages"
WIDTHS = (1440, 1024, 360)
UNSERVED = ("images", "mail", "reports-of-the-quarter", "webhooks")
_NUMBERS = count()

_ANIMATIONS_ENDED = """() => Promise.all(document.getAnimations()
    .filter((one) => one.effect.getTiming().iterations !== Infinity)
    .map((one) => one.finished))"""


def dead_job(site: Site) -> str:
    """A dead job with an address of its own."""
    to = f"nobody{next(_NUMBERS)}@example.com"
    body = json.dumps({"to": to}).encode()
    (lost,) = site.enqueue(
        NewJob(kind="send", queue="mail", payload=body, tags=("vip",), max_attempts=1)
    )
    site.wait_for(1, JobStatus.DEAD, error=to)
    return lost


def waiting_order(site: Site) -> str:
    """An order that waits for its payment."""
    number = next(_NUMBERS) + 1_000
    body = json.dumps({"number": number}).encode()
    (order,) = site.enqueue(NewJob(kind="order", queue="orders", payload=body, max_attempts=1))
    site.wait_for_event("paid", str(number))
    return order


def addresses(site: Site) -> dict[str, str]:
    """Every page by the name of its screenshot."""
    lost = dead_job(site)
    order = waiting_order(site)
    [group, *_] = site.run_on_store(lambda store: store.error_groups.seen())
    listed = {page.strip("/") or "overview": page for page in PAGES}
    return {
        **listed,
        "error-group": f"/errors/{group.id}",
        "job": f"/jobs/{lost}",
        "order": f"/jobs/{order}",
        "step": f"/jobs/{order}/step?name=charge",
        "schedule": "/cron/nightly",
        "bulk": "/bulk/retry?status=dead",
        "queue-charts": "/?queue=mail&range=5m",
        "queue-capacity": "/capacity?queue=mail&against=week",
        "timeline": "/timeline?queue=mail&against=day",
        "task": "/tasks/order",
        "tasks-by-queue": "/tasks?by=queue&range=24h&sort=backlog",
        "tag": "/tags/show?tag=vip",
        "nothing": "/jobs?kind=nothing",
        "api": "/api/docs",
        "api-alerts": "/api/docs/alerts",
    }


@pytest.mark.parametrize("third", [0, 1, 2])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_page_passes_axe_and_has_its_picture(
    browser: Browser, site: Site, colours: Any, third: int
) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    # bypass_csp: the content security policy of the pages forbids injected scripts such as axe
    with open_window(browser, site.address, color_scheme=colours, bypass_csp=True) as page:
        for name, address in list(addresses(site).items())[third::3]:
            page.goto(address)
            page.add_script_tag(path=AXE)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, f"{address} is {wide} wide at {width}"
                seen = violations(page)
                found += [f"{address} at {width}: {one}" for one in seen]
                page.screenshot(path=PICTURES / f"{name}-{colours}-{width}.png")
    assert found == [], "\n".join(found)


def violations(page: Page) -> list[str]:
    """The violations that axe reports."""
    options = {"resultTypes": ["violations"], "preload": False}
    answer = page.evaluate("options => axe.run(options)", options)
    return [
        f"{one['id']}: {node['html'][:120]} {node['failureSummary'][:160]}"
        for one in answer["violations"]
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_dialogs_over_a_page_pass_axe(browser: Browser, site: Site, colours: Any) -> None:
    lost = dead_job(site)
    with open_window(browser, site.address, color_scheme=colours, bypass_csp=True) as page:
        page.goto("/dead")
        page.add_script_tag(path=AXE)
        page.locator(f"#job-{lost} a[data-drawer]").click()
        expect(page.locator("#drawer .card.bad")).to_be_visible()
        picture(page, "drawer", colours)
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        expect(page.locator("#help")).to_be_visible()
        picture(page, "help", colours)
        page.keyboard.press("Escape")
        page.keyboard.press("Control+k")
        page.keyboard.type("mail")
        expect(page.locator("#palette-list")).to_contain_text("Queue mail")
        picture(page, "palette", colours)
        page.keyboard.press("Escape")
        page.locator(f"#job-{lost} input").check()
        page.keyboard.press("d")
        expect(page.locator("#confirm-title")).to_have_text("Delete 1 job?")
        picture(page, "confirm", colours)
        page.keyboard.press("Escape")
        page.locator("input[name=all]").check()
        page.get_by_role("button", name="Retry").click()
        expect(page.locator("#bulk .reach")).to_be_visible()
        picture(page, "preview", colours)
        for form, opens in (("/cron", "New schedule"), ("/limits", "Set a limit")):
            page.goto(form)
            page.add_script_tag(path=AXE)
            page.get_by_text(opens).click()
            picture(page, opens.lower().replace(" ", "-"), colours)


def picture(page: Page, name: str, colours: str) -> None:
    """A screenshot at each width, without axe violations. A dialog that still fades in has other
    colours, so finite animations end first."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.evaluate(_ANIMATIONS_ENDED)
    for width in (360, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.screenshot(path=PICTURES / f"{name}-{colours}-{width}.png")
        assert violations(page) == [], f"{name} at {width}"


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_pages_without_the_layout_pass_axe(browser: Browser, site: Site, colours: Any) -> None:
    with open_window(browser, site.staff_address, color_scheme=colours, bypass_csp=True) as page:
        page.goto("/queues")
        page.wait_for_url("**/login?back=**")
        page.add_script_tag(path=AXE)
        picture(page, "login", colours)
    # not open_window: the browser logs a 404 page to its console
    browser_context = browser.new_context(
        base_url=site.address, color_scheme=colours, bypass_csp=True
    )
    page = browser_context.new_page()
    answer = page.goto("/cron/no-such-schedule")
    assert answer is not None
    assert answer.status == 404
    page.add_script_tag(path=AXE)
    picture(page, "trouble", colours)
    browser_context.close()


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_occasional_parts_of_pages_pass_axe(browser: Browser, site: Site, colours: Any) -> None:
    """Unserved queues, read-only pages, a running bulk operation."""
    options: dict[str, Any] = {"color_scheme": colours, "bypass_csp": True}
    with (
        web_harness(auth=None) as alone,
        serve_on_socket(alone.app) as address,
        open_window(browser, address, **options) as page,
    ):
        for queue in UNSERVED:
            job = {"kind": "send", "queue_name": queue}
            assert page.request.post("/api/jobs/enqueue", data=job).ok
        page.goto("/workers")
        expect(page.get_by_role("alert")).to_contain_text(f"serves {', '.join(UNSERVED)}:")
        page.add_script_tag(path=AXE)
        picture(page, "unserved", colours)
    with (
        web_harness(site.url, auth=None, read_only=True) as shown,
        serve_on_socket(shown.app) as address,
        open_window(browser, address, **options) as page,
    ):
        for name in ("queues", "dead"):
            page.goto(f"/{name}")
            expect(page.get_by_role("status").first).to_contain_text("Read-only")
            page.add_script_tag(path=AXE)
            picture(page, f"read-only-{name}", colours)
    enqueue_many(site, f"seen-{colours}")
    begun = start_slow_operation(site, f"seen-{colours}")
    staff = {**options, "extra_http_headers": as_role(Role.ADMIN)}
    with open_window(browser, site.staff_address, **staff) as page:
        page.goto(f"/scheduled?tag=seen-{colours}")
        expect(page.locator(f"#operation-{begun.id}")).to_be_visible()
        page.add_script_tag(path=AXE)
        picture(page, "bulk-progress", colours)
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(f"#operation-{begun.id}")).to_have_count(0)
    delete_many(site, f"seen-{colours}")


def test_no_page_breaks_the_policy_or_its_console(page: Page, site: Site) -> None:
    for address in addresses(site).values():
        answer = page.goto(address)
        assert answer is not None
        assert answer.status == 200, address
        policy = answer.headers["content-security-policy"]
        assert "'unsafe" not in policy
        page.wait_for_function("window.forge && window.htmx && window.forgeCharts")
