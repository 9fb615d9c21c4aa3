"""A browser window whose console is watched."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page

from forge_jobs.web import Role
from tests.web.panel import token

PAGES = (
    "/", "/jobs", "/scheduled", "/retries", "/dead", "/cron", "/queues", "/workers", "/limits",
    "/health", "/audit",
)  # fmt: skip
PATIENCE_MS = 45_000


def as_role(role: Role) -> dict[str, str]:
    """What a browser of somebody with that role sends along."""
    return {"authorization": f"Bearer {token(role)}"}


@contextmanager
def open_window(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """A window on that site; what its console complains of fails the test."""
    options.setdefault("viewport", {"width": 1440, "height": 900})
    room = browser.new_context(base_url=address, **options)
    room.set_default_timeout(PATIENCE_MS)
    page = room.new_page()
    said: list[str] = []
    page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append(f"dialog {dialog.message}"), dialog.dismiss()))
    try:
        yield page
    finally:
        room.close()
    assert said == [], said
