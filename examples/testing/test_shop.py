"""Tests of one's own tasks: no worker, no server, no waiting. Run: pytest examples/testing

All tests share the store of `forge`, so each one uses a customer of its own.
"""

import asyncio
import os

import pytest
from shop import forge, order, send_mail

from forge_jobs import BadArguments, testing

os.environ["FORGE_URL"] = "memory://"  # Forge() reads its address when it is first used


def test_a_plain_call_runs_the_function() -> None:
    assert asyncio.run(send_mail("ada@example.com", "hello")) == "sent to ada@example.com"
    testing.refute_enqueued(forge, send_mail, {"to": "ada@example.com"})


def test_inline_mode_runs_jobs_before_enqueue_returns() -> None:
    with testing.inline(forge):
        job = order.enqueue("bob@example.com", ["pen"])
    assert job.result(timeout=0) == 1
    testing.assert_enqueued(forge, send_mail, {"to": "bob@example.com"}, status="done")


def test_drain_runs_everything_that_is_due() -> None:
    order.enqueue("eve@example.com", ["pen", "ink"])
    testing.refute_enqueued(forge, send_mail, {"to": "eve@example.com"})
    report = forge.drain().run()
    assert report.done == 2
    [mail] = testing.assert_enqueued(forge, send_mail, {"to": "eve@example.com"}, status="done")
    assert mail.payload["text"] == "thank you for 2 items"


def test_retries_need_no_waiting() -> None:
    with testing.frozen(forge) as time:
        job = send_mail.enqueue("flaky@example.com", "hello")
        forge.drain().run()
        assert job.refresh().status == "failed"
        for wait in ("1m", "2m"):  # as the Retry of the task says
            time.advance(wait)
            forge.drain().run()
        assert job.result(timeout=0) == "sent to flaky@example.com"
        assert job.refresh().attempts == 3


def test_failures_and_wrong_arguments() -> None:
    with testing.inline(forge), pytest.raises(ValueError, match="nothing ordered"):
        order.enqueue("gus@example.com", [])
    with pytest.raises(BadArguments, match="argument 'items' must be"):
        order.enqueue("gus@example.com", "pen")
