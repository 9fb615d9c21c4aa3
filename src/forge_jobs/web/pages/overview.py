"""The first page: is everything well, and if not, where to look."""

from typing import Final

from forge_jobs.core.errors import BadOption
from forge_jobs.ops import look
from forge_jobs.web.desk import Desk

from .page import Given, Page, Shown

# Ranges people choose from, in minutes.
RANGES: Final = {"5m": 5, "30m": 30, "1h": 60, "3h": 180, "6h": 360, "24h": 1_440, "7d": 10_080}


async def view(desk: Desk, given: Given) -> Shown:
    chosen = given.get("range", "1h")
    if chosen not in RANGES:
        raise BadOption(f"range={chosen!r} is not one of {', '.join(RANGES)}")
    seen = await look.overview(desk.store, minutes=RANGES[chosen], clock=desk.clock)
    blocked = [queue for queue in seen.queues if queue.blocks]
    return {
        "seen": seen,
        "blocked": blocked,
        "range": chosen,
        "ranges": list(RANGES),
        "flow": {
            "at": [minute.at.timestamp() for minute in seen.minutes],
            "series": {
                "enqueued": [minute.enqueued for minute in seen.minutes],
                "done": [minute.done for minute in seen.minutes],
                "retried": [minute.retried for minute in seen.minutes],
                "dead": [minute.dead for minute in seen.minutes],
            },
        },
    }


PAGE: Final = Page(
    path="/", name="overview", title="Overview", template="overview.html", view=view, key="o"
)
