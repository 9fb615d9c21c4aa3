"""A browser window whose console must stay empty."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Dialog, Page

from forge_jobs.web import Role
from tests.web.harness import token

PAGES = (
    "/", "/jobs", "/scheduled", "/retries", "/dead", "/suspended", "/cron", "/queues", "/workers",
    "/capacity", "/tasks", "/tags", "/limits", "/errors", "/alerts", "/health", "/audit",
)  # fmt: skip
PATIENCE_MS = 45_000


def as_role(role: Role) -> dict[str, str]:
    """Headers that authenticate with that role."""
    return {"authorization": f"Bearer {token(role)}"}


@contextmanager
def open_window(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """Open a window; errors and warnings in its console fail the test."""
    options.setdefault("viewport", {"width": 1440, "height": 900})
    browser_context = browser.new_context(base_url=address, **options)
    browser_context.set_default_timeout(PATIENCE_MS)
    page = browser_context.new_page()
    messages: list[str] = []
    page.on(
        "console", lambda m: messages.append(m.text) if m.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: messages.append(str(error)))

    def refuse(dialog: Dialog) -> None:
        messages.append(f"dialog {dialog.message}")
        dialog.dismiss()

    page.on("dialog", refuse)
    try:
        yield page
    finally:
        browser_context.close()
    assert messages == [], messages
