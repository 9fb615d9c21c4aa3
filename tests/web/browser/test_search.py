"""Search among many jobs: one request is bounded, and the script repeats it until a match."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser.test_every_page import AXE, picture, violations
from tests.web.browser.window import open_window
from tests.web.harness import serve_on_socket, web_harness

# A little more than three bounded reads.
COMMON = 15_500


@pytest.fixture(scope="module")
def crowd() -> Iterator[str]:
    """Many jobs, and one with a rare tag that is older than all of them."""
    with web_harness(auth=None) as created, serve_on_socket(created.app) as address:

        @created.forge.task
        async def note(number: int) -> None:
            return None

        note.using(tags=["rare"]).enqueue(0)
        note.enqueue_many([(number,) for number in range(COMMON)])
        yield address


@pytest.fixture
def page(browser: Browser, crowd: str) -> Iterator[Page]:
    with open_window(browser, crowd) as window:
        yield window


def test_a_rare_tag_is_found_by_one_click(page: Page) -> None:
    page.goto("/jobs?tag=rare")
    expect(page.locator(".matching")).to_contain_text("0 found, looked through 5,000 jobs")
    page.get_by_role("link", name="Search on").click()
    expect(page.locator("tr[id] .tag")).to_have_text("rare")
    assert "after=" in urlsplit(page.url).query


def test_a_search_without_a_match_says_that_it_read_all_jobs(page: Page) -> None:
    page.goto("/jobs?tag=nobody")
    before = page.url
    page.get_by_role("link", name="Search on").click()
    expect(page.locator("#searching")).to_have_text(
        f"Looked through {COMMON + 1:,} jobs: none fits."
    )
    assert page.url == before


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_a_search_stops_on_request_and_continues_from_there(
    browser: Browser, crowd: str, colours: Any
) -> None:
    with open_window(browser, crowd, color_scheme=colours, bypass_csp=True) as page:
        page.goto("/jobs?tag=rare")
        page.add_script_tag(path=AXE)
        # slow enough to be stopped, however fast the machine is
        held: list[str] = []
        page.route("**/jobs?*after=*", lambda route: held.append(route.request.url))
        page.get_by_role("link", name="Search on").click()
        searching = page.locator("#searching")
        expect(searching).to_contain_text("Looked through 5,000 jobs")
        picture(page, "searching", colours)
        searching.get_by_role("button", name="Stop").click()
        expect(searching).to_contain_text("Stopped")
        assert violations(page) == []
        page.unroute_all()
        assert len(held) == 1
        searching.get_by_role("link", name="Go on").click()
        expect(page.locator("tr[id] .tag")).to_have_text("rare")


def test_without_scripts_each_click_is_one_bounded_read(browser: Browser, crowd: str) -> None:
    with open_window(browser, crowd, java_script_enabled=False) as page:
        page.goto("/jobs?tag=rare")
        for _ in range(3):
            expect(page.locator("tr[id]")).to_have_count(0)
            page.get_by_role("link", name="Search on").click()
        expect(page.locator("tr[id] .tag")).to_have_text("rare")
