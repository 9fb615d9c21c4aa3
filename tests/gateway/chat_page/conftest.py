"""The demo in a thread of its own, and a browser for its chat page."""

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from telegram_gateway.demo import DemoEnvironment
from tests.browser_start import chromium
from tests.web.browser.window import open_window

TIMEOUT_S = 60.0


class Demo:
    """Runs a DemoEnvironment until ``stop``."""

    def __init__(self) -> None:
        self.address = ""
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="demo")

    def start(self) -> "Demo":
        self._thread.start()
        assert self._ready.wait(TIMEOUT_S)
        if self._error is not None:
            raise self._error
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._run_demo())
        except BaseException as error:  # raised again in the test's thread
            self._error = error
        finally:
            self._ready.set()
            self._loop.close()

    async def _run_demo(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with DemoEnvironment(Path(folder)).running() as demo:
                self.address = demo.address
                self._ready.set()
                await self._ended.wait()


@pytest.fixture(scope="package")
def demo() -> Iterator[Demo]:
    made = Demo().start()
    yield made
    made.stop()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched


@pytest.fixture
def page(browser: Browser, demo: Demo) -> Iterator[Page]:
    """A window that fails the test for any error in its console."""
    with open_window(browser, demo.address) as window:
        yield window
