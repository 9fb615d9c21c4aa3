"""Tests of the newsletter: nobody gets it twice, and nobody who left gets it."""

import os

from newsletter import forge, mail, plan, sent

from forge_jobs import testing

os.environ["FORGE_URL"] = "memory://"


def test_a_plan_that_runs_twice_sends_once():
    for stored in (20, 0):
        job = plan.enqueue("may", 20)
        forge.drain().run()
        assert job.result(timeout=0) == stored
    testing.assert_enqueued(forge, mail, {"issue": "may"}, status="done", times=19)
    assert set(sent.values()) == {1}


def test_who_left_after_the_plan_gets_nothing():
    [refused] = testing.enqueued(forge, mail, {"to": "reader7@example.org"})
    assert (refused.status, refused.error) == ("dead", "unsubscribed")
