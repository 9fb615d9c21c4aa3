"""The demo's chat page: an echo, a dead message, layout and accessibility."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.gateway.chat_page.conftest import Demo
from tests.web.browser.window import PATIENCE_MS, open_window

expect.set_options(timeout=PATIENCE_MS)
AXE = Path(__file__).resolve().parents[3] / "node_modules" / "axe-core" / "axe.min.js"


def write(page: Page, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_role("button", name="Send").click()


def test_a_message_is_echoed(page: Page) -> None:
    page.goto("/")
    text = "<b>hello</b> & größe 😀"
    write(page, text)
    expect(page.locator("#log .user span")).to_have_text(text)
    expect(page.locator("#log .bot span")).to_have_text(text)
    expect(page.locator("#fate")).to_have_text("Answered")
    page.get_by_role("link", name="Look at its job").click()
    expect(page.locator(".lead .status")).to_have_text("done")
    page.go_back()
    expect(page.locator("#log .bot span")).to_have_text(text)


def test_a_message_is_dead_after_its_retries_and_the_user_gets_a_notice(page: Page) -> None:
    page.goto("/")
    page.get_by_role("button", name="Shop").click()
    answers = page.locator("#log .bot span")
    write(page, "bread")
    expect(answers).to_have_text(["Order 1 is noted: bread"])
    page.get_by_role("button", name="Stop the service").click()
    expect(page.locator("#service")).to_have_text("It is stopped.")
    write(page, "cake")
    fate = page.locator("#fate")
    for number in (1, 2, 3, 4):
        expect(fate).to_have_text(f"Failed, and is tried again, try {number} of 5")
        expect(page.locator("#error")).to_contain_text("the service could not be reached")
        page.get_by_role("button", name="Skip the wait").click()
    expect(fate).to_have_text("Dead, try 5 of 5")
    expect(answers).to_have_count(2)
    expect(answers.last).to_contain_text("your message could not be processed. Reference: ")
    expect(page.get_by_role("button", name="Skip the wait")).to_be_hidden()
    page.get_by_role("button", name="Start the service").click()
    expect(page.locator("#service")).to_have_text("It runs.")
    write(page, "tea")
    expect(answers.last).to_have_text("Order 2 is noted: tea")
    expect(answers).to_have_count(3)


@pytest.mark.parametrize(("width", "colours"), [(1440, "dark"), (360, "light")])
def test_layout_and_accessibility(browser: Browser, demo: Demo, width: int, colours: Any) -> None:
    # axe is injected into the page, which the page's content security policy would forbid
    with open_window(
        browser,
        demo.address,
        viewport={"width": width, "height": 800},
        color_scheme=colours,
        bypass_csp=True,
    ) as page:
        page.goto("/")
        write(page, "a word " * 60 + "x" * 200)
        expect(page.locator("#log .bot span").last).to_contain_text("xxx")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.evaluate(AXE.read_text(encoding="utf-8"))
        answer = page.evaluate("axe.run({resultTypes: ['violations'], preload: false})")
        assert [one["id"] for one in answer["violations"]] == []
