"""Tests of the agent: what was paid for once is not paid for again."""

import os

import pytest
from agent import agent, calls, crashes, forge

from forge_jobs import testing

os.environ["FORGE_URL"] = "memory://"


@pytest.fixture(autouse=True)
def nothing_paid():
    calls.clear()
    crashes.clear()


def test_a_crash_repeats_only_the_call_that_broke():
    crashes.append("the connection broke")
    with testing.frozen(forge) as time:
        job = agent.enqueue("Find me a flight")
        forge.drain().run()
        time.advance("1m")
        forge.drain().run()
        assert job.refresh().status == "suspended"
        job.send("approve", True)
        forge.drain().run()
    assert job.result(timeout=0) == "You fly at nine."
    assert calls == ["model", "search", "model", "model", "book", "model"]


def test_without_an_answer_it_gives_up():
    with testing.frozen(forge) as time:
        job = agent.enqueue("Find me a flight")
        forge.drain().run()
        time.advance("4d")
        forge.drain().run()
    assert job.result(timeout=0) == "Nobody agreed."
    assert "book" not in calls


def test_it_stops_when_its_budget_is_spent():
    job = agent.enqueue("Find me a flight", budget=100)
    forge.drain().run()
    assert job.result(timeout=0) == "stopped after 120 tokens"
