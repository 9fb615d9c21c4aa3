"""Tests of the service: tags, the tenant of a run, and what one customer may use."""

import os

from tenants import forge, invoice, request, started, tenant

from forge_jobs import testing

os.environ["FORGE_URL"] = "memory://"


def test_a_run_has_the_tenant_of_the_request():
    request("ada", 1)
    assert tenant.get("none") == "none"
    forge.drain().run()
    [job] = testing.assert_enqueued(forge, invoice, tag="tenant:ada")
    assert job.result(timeout=0) == "ada-0"


def test_a_customer_has_two_jobs_that_may_run_and_the_rest_wait():
    request("bob", 5)
    request("eve", 1)
    waiting = testing.enqueued(forge, invoice, status="held", tag="tenant:bob")
    ready = testing.enqueued(forge, invoice, status="pending")
    assert len(waiting) == 3
    assert sorted(job.payload["customer"] for job in ready) == ["bob", "bob", "eve"]
    started.clear()
    forge.drain().run()
    assert started.index("eve") < 3
