"""O7: the live dot and the banner tell an outage, also a silent one; files are loaded once."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.web.browser.site import Site

DOT = ".refresh .dot"


@contextmanager
def web_process(folder: Path) -> Iterator[tuple[int, str]]:
    """``forge web`` in a process of its own; its id and address."""
    url = f"sqlite:///{folder / 'jobs.db'}"
    environment = {name: value for name, value in os.environ.items() if "FORGE_" not in name}
    command = [sys.executable, "-m", "forge_jobs", "web", "--port", "0", "--url", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None
            yield process.pid, found[0]
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()


def colour(page: Page) -> str:
    return page.evaluate(f"getComputedStyle(document.querySelector('{DOT}')).backgroundColor")


def test_o7_the_dot_is_red_and_the_age_of_the_page_is_named_in_an_outage(
    browser: Browser, tmp_path: Path
) -> None:
    """The server stops without closing its connections, which tells the browser nothing."""
    with web_process(tmp_path) as (pid, address):
        browser_context = browser.new_context(base_url=address)
        page = browser_context.new_page()
        page.clock.install()
        page.goto("/queues")
        expect(page.locator(f"{DOT}.live")).to_be_visible()
        page.wait_for_timeout(1_500)
        healthy = colour(page)
        os.kill(pid, signal.SIGSTOP)
        page.clock.fast_forward(60_000)
        banner = page.locator("#trouble")
        expect(banner).to_contain_text("No answer from Mission Control")
        expect(banner).to_contain_text(re.compile(r"The page shows the state of \d+:\d+"))
        expect(page.locator(f"{DOT}.bad")).to_be_visible()
        assert page.locator(f"{DOT}.live").count() == 0
        assert colour(page) != healthy
        os.kill(pid, signal.SIGCONT)
        expect(banner).to_be_hidden()
        expect(page.locator(f"{DOT}.live")).to_be_visible()
        assert colour(page) == healthy
        browser_context.close()


def test_o7_the_dot_is_red_while_the_server_is_gone(browser: Browser, tmp_path: Path) -> None:
    first = Site(tmp_path).start()
    browser_context = browser.new_context(base_url=first.address)
    page = browser_context.new_page()
    page.goto("/queues")
    expect(page.locator(f"{DOT}.live")).to_be_visible()
    first.stop()
    expect(page.locator(f"{DOT}.bad")).to_be_visible()
    expect(page.locator("#trouble")).to_contain_text("The page shows the state of")
    # a paused page shows no outage: nothing is expected of it
    page.locator("select[data-do=refresh]").select_option("off")
    expect(page.locator(f"{DOT}.bad")).to_have_count(0)
    assert page.locator(f"{DOT}.live").count() == 0
    browser_context.close()


def test_o7_a_second_page_loads_no_file_again(page: Page) -> None:
    sizes = (
        "performance.getEntriesByType('resource').filter(e => e.name.includes('/static/'))"
        ".map(e => e.transferSize)"
    )
    page.goto("/queues")
    first = page.evaluate(sizes)
    assert len(first) >= 9
    assert 0 < sum(first) < 150_000
    page.goto("/workers")
    page.wait_for_load_state()
    assert sum(page.evaluate(sizes)) == 0
