"""The jobs that the demo enqueues: a mixture of all sample tasks, numbered from 1."""

from collections.abc import Iterator
from itertools import count

from forge_jobs import NOOP_ECHO_KIND
from forge_jobs.core import payload
from forge_jobs.core.job import NewJob


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
