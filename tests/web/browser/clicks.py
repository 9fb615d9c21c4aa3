"""Counts the clicks that an operator needs for a task: at most three."""

from playwright.sync_api import Locator

MAX_CLICKS = 3


class Clicks:
    """Clicks of one task; the one too many fails the test."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, target: Locator, **options: object) -> None:
        """Click it."""
        self.count += 1
        assert self.count <= MAX_CLICKS, f"click {self.count} of at most {MAX_CLICKS}: {target}"
        target.click(**options)  # type: ignore[arg-type]
