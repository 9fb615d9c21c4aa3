"""The jobs that the demo enqueues: a mixture of all sample tasks, numbered from 1; and the payments
of its orders."""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final

from forge_jobs import NOOP_ECHO_KIND
from forge_jobs.core import payload
from forge_jobs.core.events import NewEvent
from forge_jobs.core.job import NewJob
from forge_jobs.core.new_event import new_event

# Of 400 jobs one is an order, from this one on; it is paid so many seconds later.
FIRST_ORDER: Final = 104
PAID_AFTER_S: Final = 9.0
_ORDER_KIND: Final = "fulfil_order"


class Payments:
    """The payments of the orders that were enqueued, each due a little later."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int]] = []

    def add(self, jobs: Iterable[NewJob], now_s: float) -> None:
        """Take the orders among these jobs."""
        for job in jobs:
            if job.kind == _ORDER_KIND:
                number = payload.decode(job.payload)["number"]
                self._due.append((now_s + PAID_AFTER_S, number))

    def due(self, now_s: float) -> list[NewEvent]:
        """The events to send now."""
        ready = [number for at, number in self._due if at <= now_s]
        self._due = [one for one in self._due if one[0] > now_s]
        return [
            new_event("payment", {"cents": 990 + number}, key=number, keep="1h") for number in ready
        ]


def sample_jobs() -> Iterator[NewJob]:
    """An endless sequence of jobs. Imports the application on the first one, because it is slow."""
    from . import demo_app as shop

    for number in count(1):
        customer = f"customer{number}@example.com"
        match number % 10:
            case 0:
                yield shop.remind.using(delay=f"{2 + number % 4}s").bind(number, customer)
            case 1 | 2 | 3:
                yield shop.resize.bind(number, 320)
            case 5 if number % 20 == 5:
                pause = {"throttle_ms": 1_000} if number % 60 == 5 else {}
                body = payload.encode({"sleep_ms": 40, **pause})
                yield NewJob(kind=NOOP_ECHO_KIND, queue="orders", payload=body)
            case 4 if number % 400 == FIRST_ORDER:
                yield shop.fulfil_order.bind(number)
            case 4 | 5:
                yield shop.sync_order.bind(number)
            case 6 if number % 20 == 6:
                yield shop.report.using(priority=-1).bind(number, 200_000)
            case 7 if number % 60 == 7:
                yield shop.newsletter.bind(number)
            case 8 if number % 40 == 8:
                shops = ("north", "south")
                name = shops[number // 40 % 2]
                yield shop.count_stock.using(lane=f"stock:{name}").bind(number, name)
            case 9 if number % 200 == 9:
                yield shop.remind.using(delay="1h", tags=["later"]).bind(number, customer)
            case _:
                yield shop.send_mail.using(tags=["demo"]).bind(number, customer)
