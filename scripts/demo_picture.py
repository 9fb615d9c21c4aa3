"""Makes docs/images/demo.webp: the demo, as a browser shows it, in a moving picture.

    python -m scripts.demo_picture [--output docs/images/demo.webp]

Starts `forge demo`, walks through Mission Control in a real Chromium and takes pictures on the way.
Needs `make setup` and the environment of `make release`.
"""

import argparse
import io
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Page

from tests.browser_start import chromium

ROOT = Path(__file__).resolve().parent.parent
MAX_BYTES: Final = 1_000_000
_WINDOW: Final = (1200, 750)
_SHOWN: Final = (960, 600)
_FRAME_MS: Final = 350
# Tracebacks name the folder of the package; a picture should not.
_HIDE: Final = """folder => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const text = texts.currentNode;
        if (text.data.includes(folder)) text.data = text.data.replaceAll(folder, "");
    }
}"""
# How a frame is stored: lower quality where the file would be too large.
_QUALITIES: Final = (60, 40, 25)


class Film:
    """Pictures of a page, each shown as long as it lasted."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.frames: list[Image.Image] = []

    def watch(self, frames: int) -> None:
        """Take pictures of what happens by itself."""
        for _ in range(frames):
            self._page.evaluate(_HIDE, f"{ROOT}/src/")
            picture = Image.open(io.BytesIO(self._page.screenshot()))
            self.frames.append(picture.convert("RGB").resize(_SHOWN, Image.Resampling.LANCZOS))
            self._page.wait_for_timeout(_FRAME_MS)

    def click(self, name: str, *, within: str = "body", frames: int = 4) -> None:
        """Move to a link or button, press it, and watch what it does."""
        target = self._page.locator(within).get_by_role("link", name=name)
        if not target.count():
            target = self._page.locator(within).get_by_role("button", name=name)
        target.first.hover()
        self.watch(1)
        target.first.click()
        self._page.wait_for_load_state("load")
        self.watch(frames)

    def save(self, output: Path) -> None:
        """Write the film, small enough for a page."""
        first, *others = self.frames
        for quality in _QUALITIES:
            first.save(
                output, format="WEBP", save_all=True, append_images=others, duration=_FRAME_MS,
                loop=0, quality=quality, method=4,
            )  # fmt: skip
            if output.stat().st_size <= MAX_BYTES:
                return
        raise SystemExit(f"{output} is larger than {MAX_BYTES:,} bytes: show less")


@contextmanager
def demo(folder: Path) -> Iterator[str]:
    """The running demo; its address."""
    program = Path(sys.executable).with_name("forge")
    process = subprocess.Popen(
        [program, "demo", "--port", "0"],
        cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        printed = ""
        while (found := re.search(r"http://127\.0\.0\.1:\d+", printed)) is None:
            line = process.stdout.readline()
            if not line:
                raise SystemExit(printed)
            printed += line
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def walk(page: Page, film: Film) -> None:
    """What the film shows: work in progress, a job that died, its retry, a queue that is paused."""
    page.wait_for_timeout(6_000)  # until the charts have something to show
    page.get_by_role("link", name="5m").or_(page.get_by_role("button", name="5m")).first.click()
    film.watch(9)
    film.click("Dead", within="nav")
    page.locator("tbody tr a").first.hover()
    film.watch(1)
    page.locator("tbody tr a").first.click()
    page.wait_for_load_state("load")
    film.watch(6)
    film.click("Retry", within="dialog", frames=3)
    page.keyboard.press("Escape")
    film.click("Queues", within="nav", frames=5)
    film.click("Overview", within="nav", frames=8)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.demo_picture")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images" / "demo.webp")
    output: Path = parser.parse_args().output
    with tempfile.TemporaryDirectory() as name, demo(Path(name)) as address, chromium() as browser:
        width, height = _WINDOW
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto(address)
        film = Film(page)
        walk(page, film)
    film.save(output)
    print(f"{output}: {len(film.frames)} pictures, {output.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
