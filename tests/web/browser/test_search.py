"""Searching among many: one look is bounded, and a page goes from look to look by itself."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browser.test_every_page import AXE, picture, violations
from tests.web.browser.window import open_window
from tests.web.panel import on_a_socket, panel

# Three looks and a little.
COMMON = 15_500


@pytest.fixture(scope="module")
def crowd() -> Iterator[str]:
    """Many jobs, and below all of them a rare one."""
    with panel(auth=None) as made, on_a_socket(made.app) as address:

        @made.forge.task
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


def test_a_search_without_a_find_says_that_it_saw_everything(page: Page) -> None:
    page.goto("/jobs?tag=nobody")
    before = page.url
    page.get_by_role("link", name="Search on").click()
    expect(page.locator("#searching")).to_have_text(
        f"Looked through {COMMON + 1:,} jobs: none fits."
    )
    assert page.url == before


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_a_search_stops_when_asked_and_goes_on_from_there(
    browser: Browser, crowd: str, colours: Any
) -> None:
    with open_window(browser, crowd, color_scheme=colours, bypass_csp=True) as page:
        page.goto("/jobs?tag=rare")
        page.add_script_tag(path=AXE)
        # whatever a look takes, this one takes long enough to be stopped
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


def test_without_scripts_each_click_is_a_look(browser: Browser, crowd: str) -> None:
    with open_window(browser, crowd, java_script_enabled=False) as page:
        page.goto("/jobs?tag=rare")
        for _ in range(3):
            expect(page.locator("tr[id]")).to_have_count(0)
            page.get_by_role("link", name="Search on").click()
        expect(page.locator("tr[id] .tag")).to_have_text("rare")
