"""Tests of the web shop, on a SQLite file of their own."""

import os
import tempfile
from contextlib import closing

import pytest

os.environ["SHOP_FILE"] = f"{tempfile.mkdtemp()}/shop.db"  # before the shop is imported

from web_shop import forge, fulfil, place_order, refusals, send_mail, shop

from forge_jobs import testing


@pytest.fixture(autouse=True)
def one_pen():
    refusals.clear()
    with closing(shop()) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO stock VALUES ('pen', 1)")
    testing.reset(forge)


def state(order):
    with closing(shop()) as connection:
        return connection.execute("SELECT state FROM orders WHERE id = ?", [order]).fetchone()[0]


def test_an_order_is_charged_once_though_its_first_attempt_fails():
    refusals.append("the bank does not answer")
    order = place_order("pen")
    with testing.frozen(forge) as time:
        forge.drain().run()
        time.advance("1m")
        forge.drain().run()
    [job] = testing.assert_enqueued(forge, fulfil, {"order": order}, status="done")
    assert [step.name for step in job.steps()] == ["charge", "stock"]
    testing.assert_enqueued(forge, send_mail, {"text": "pen is on its way"}, status="done")
    assert state(order) == "sent"


def test_what_is_sold_out_is_refunded():
    order = place_order("yacht")
    forge.drain().run()
    testing.assert_enqueued(forge, send_mail, {"text": "money back: no yacht left"})
    assert state(order) == "refunded"


def test_an_order_that_is_rolled_back_leaves_no_job():
    with closing(shop()) as connection:
        fulfil.using(tx=connection).enqueue(7, "pen")
        connection.rollback()
    testing.refute_enqueued(forge, fulfil)
