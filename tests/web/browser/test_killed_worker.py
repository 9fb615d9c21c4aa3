"""The order workflow of the demo in a browser, while its worker is killed: once in the middle of a
step, once while it waits."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.cli.shell import Shell, stop
from tests.web.browser.window import PATIENCE_MS, open_window

# The workflow of the demo; each call of a step's function leaves a line with its process. `reserve`
# goes on when the file `hold` is gone, and nothing is shipped while `storm` is there.
SHOP = """
import os
from pathlib import Path

from forge_jobs.cli import demo_app
from forge_jobs.kit.clock import SYSTEM_CLOCK

HERE = Path(__file__).parent
forge = demo_app.forge


def noted(name):
    function = getattr(demo_app, name)

    async def call(*args):
        with (HERE / "calls").open("a") as file:
            file.write(f"{os.getpid()} {name} {args[0]}\\n")
        while name == "reserve" and (HERE / "hold").exists():
            await SYSTEM_CLOCK.sleep(0.02)
        if name == "ship" and (HERE / "storm").exists():
            raise ConnectionError("no ship leaves in this storm")
        return await function(*args)

    setattr(demo_app, name, call)


for name in ("find_price", "reserve", "ship"):
    noted(name)
"""
PRICES = ["find_price cup", "find_price saucer", "find_price spoon"]


class Calls:
    """The calls of the functions of steps, in all processes."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "calls"

    def read(self) -> list[tuple[int, str]]:
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        pairs = [line.split(" ", 1) for line in lines]
        return [(int(pid), call) for pid, call in pairs]

    def wait_for(self, call: str) -> int:
        """The process that made this call first."""
        until = time.monotonic() + PATIENCE_MS / 1000
        while True:
            for pid, made in self.read():
                if made == call:
                    return pid
            assert time.monotonic() < until, f"no call {call!r} in {self.read()}"
            time.sleep(0.02)

    def names(self) -> list[str]:
        return sorted(call for _, call in self.read())


def address_of(web: Any) -> str:
    for line in web.stdout:
        if line.startswith("Mission Control: "):
            return line.partition(": ")[2].strip()
    raise AssertionError("Mission Control did not start")


def step(page: Page, name: str) -> Locator:
    return page.locator(".waterfall li").filter(
        has=page.locator(".name").get_by_text(name, exact=True)
    )


def stored_by(page: Page, name: str) -> Locator:
    """The line of a step that names its run."""
    row = step(page, name)
    if row.locator("details[open]").count() == 0:
        row.locator("summary").click()
    return row.locator(".inside p").first


@pytest.mark.processes
def test_the_demos_order_goes_on_where_its_killed_worker_was(
    browser: Browser, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "hold").touch()
    (tmp_path / "storm").touch()
    shell, calls = Shell(tmp_path), Calls(tmp_path)
    order = shell.ok("enqueue", "fulfil_order", '{"number": 8}', "--queue", "orders", "--force")
    worker = ("worker", "shop:forge", "--queues", "orders:4", "--lease", "2s", "--grace", "1s")
    with (
        shell.running("web", "--port", "0") as web,
        shell.running(*worker) as parent,
        open_window(browser, address_of(web)) as page,
    ):
        page.goto(f"/jobs/{order.strip()}")
        status = page.locator(".lead .status")
        expect(page.locator(".waterfall li")).to_have_count(3)
        expect(status).to_have_text("running")

        # In the middle of a step.
        first = calls.wait_for("reserve 8")
        assert first != parent.pid
        os.kill(first, signal.SIGKILL)
        (tmp_path / "hold").unlink()
        expect(status).to_have_text("suspended")
        expect(page.locator("#steps-title")).to_contain_text("stored by 2 runs")
        expect(stored_by(page, "find price[cup]")).to_contain_text("stored by run 1")
        expect(stored_by(page, "reserve")).to_contain_text("stored by run 2")
        assert calls.names() == [*PRICES, *["reserve 8"] * 3]
        second = calls.read()[-1][0]
        assert second not in (first, parent.pid)

        # While it waits: nothing of it is in a process.
        os.kill(second, signal.SIGKILL)
        page.reload()
        expect(status).to_have_text("suspended")
        form = page.locator("form.fields").filter(
            has=page.get_by_role("button", name="Send payment")
        )
        form.get_by_label("Payload (JSON)").fill('{"cents": 1200}')
        form.get_by_role("button", name="Send payment").click()
        expect(page.locator("#notices")).to_contain_text("1 job resumed")
        third = calls.wait_for("ship 8")
        assert third not in (first, second, parent.pid)
        expect(status).to_have_text("dead")
        expect(page.locator(".job")).to_contain_text("no ship leaves in this storm")

        # From a step, after the reason is gone.
        (tmp_path / "storm").unlink()
        step(page, "wait:payment").locator("summary").click()
        step(page, "wait:payment").get_by_role("button", name="Retry from here").click()
        page.locator("#confirm").get_by_role("button", name="Retry from here").click()
        expect(page.locator("#notices")).to_contain_text("1 step runs again, 5 are kept")
        expect(status).to_have_text("done")
        expect(page.locator(".job")).to_contain_text("parcel 8, paid 1200 cents")
        expect(stored_by(page, "ship")).to_contain_text("stored by run")
        assert [name for name in calls.names() if name != "ship 8"] == [
            *PRICES, *["reserve 8"] * 3,
        ]  # fmt: skip
        assert stop(parent) == 0
