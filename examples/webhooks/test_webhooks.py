"""Tests of the receiver: the function behind the server."""

import json
import os

from webhooks import forge, handle, receive, sign

from forge_jobs import testing

os.environ["FORGE_URL"] = "memory://"


def delivery(**fields):
    body = json.dumps({"type": "paid", "cents": 5, **fields}).encode()
    return {"x-signature": sign(body)}, body


def test_a_repeated_delivery_is_one_job():
    assert receive(*delivery(id="a1", account="ada")) == (200, "stored")
    assert receive(*delivery(id="a1", account="ada")) == (200, "known already")
    forge.drain().run()
    assert receive(*delivery(id="a1", account="ada")) == (200, "known already")
    testing.assert_enqueued(forge, handle, {"account": "ada"}, status="done", times=1)


def test_a_forged_delivery_is_refused():
    headers, body = delivery(id="b1", account="bob")
    assert receive(headers, body.replace(b"5", b"9")) == (401, "wrong signature")
    assert receive({}, body) == (401, "wrong signature")
    testing.refute_enqueued(forge, handle, {"account": "bob"})


def test_events_of_an_account_keep_their_order():
    for number, kind in enumerate(("paid", "refunded", "paid")):
        receive(*delivery(id=f"c{number}", account="cy", type=kind, cents=10 * (number + 1)))
    forge.drain().run()
    jobs = testing.assert_enqueued(forge, handle, {"account": "cy"}, times=3)
    assert [job.result(timeout=0) for job in jobs] == [10, -10, 20]
