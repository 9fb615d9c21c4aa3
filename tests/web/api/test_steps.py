"""Steps, events and waits over HTTP, on every backend."""

import httpx
import pytest

from forge_jobs import Forge
from forge_jobs.web import Role, mission_control
from tests.ops.order_workflow import order_shop
from tests.web.harness import WebHarness, credentials


@pytest.fixture
def harness(any_url: str) -> WebHarness:
    forge = order_shop(any_url)
    return WebHarness(forge, mission_control(forge, auth=credentials()))


@pytest.fixture
async def admin(harness: WebHarness):
    async with harness.client(Role.ADMIN) as client:
        yield client
    await harness.app.aclose()
    await harness.forge.aclose()


async def waiting_order(forge: Forge, number: int = 7) -> str:
    job = await forge.aenqueue("order", {"number": number})
    await forge.adrain()
    return job.id


async def test_an_order_waits_is_paid_and_shows_its_steps(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    job_id = await waiting_order(harness.forge)
    listed = (await admin.get("/api/jobs", params={"status": "suspended"})).json()
    assert [row["id"] for row in listed["rows"]] == [job_id]
    waits = (await admin.get("/api/waits", params={"name": "paid", "key": "7"})).json()["waits"]
    assert [(wait["job_id"], wait["command"]) for wait in waits] == [
        (job_id, "forge send paid --key 7")
    ]
    page = (await admin.get(f"/api/jobs/{job_id}/steps")).json()
    assert [step["name"] for step in page["steps"]] == [
        "charge", "fetch[box]", "fetch[label]", "wait:paid",
    ]  # fmt: skip
    assert "value" not in page["steps"][0]
    valued = (await admin.get(f"/api/jobs/{job_id}/steps", params={"values": 1, "limit": 1})).json()
    assert valued["steps"][0]["value"] == {"id": "ch_7", "password": "***"}
    assert valued["next"] == 1
    body = {"name": "paid", "key": "7", "payload": {"token": "s3cret"}}
    sent = await admin.post("/api/events", json=body)
    assert sent.json() == {"duplicate": False, "resumed": 1}
    await harness.forge.adrain()
    assert (await admin.get(f"/api/jobs/inspect/{job_id}")).json()["row"]["status"] == "done"
    events = await admin.get("/api/events", params={"name": "paid"})
    assert events.json()["events"][0]["payload"] == {"token": "***"}
    audit = (await admin.get("/api/audit")).json()["entries"]
    assert (audit[0]["action"], audit[0]["address"]) == ("send event", "10.1.2.3")
    assert (audit[0]["before"], audit[0]["after"]) == ({"waiting": 1}, {"waiting": 0})


async def test_a_retry_from_a_step(harness: WebHarness, admin: httpx.AsyncClient) -> None:
    job_id = await waiting_order(harness.forge)
    early = await admin.post(f"/api/jobs/{job_id}/retry", json={"from": "charge"})
    assert (early.status_code, early.json()["code"]) == (409, "refused")
    body = {"name": "paid", "key": "7", "payload": {"address": "nowhere"}}
    await admin.post("/api/events", json=body)
    await harness.forge.adrain()
    wrong = await admin.post(f"/api/jobs/{job_id}/retry", json={"from": "chrage"})
    assert wrong.status_code == 404
    assert "did you mean 'charge'" in wrong.text
    done = await admin.post(f"/api/jobs/{job_id}/retry", json={"from": "ship"})
    assert done.json() == {"id": job_id, "step": "ship", "deleted": 1, "kept": 4}
    inspected = (await admin.get(f"/api/jobs/inspect/{job_id}")).json()
    assert inspected["row"]["status"] == "pending"


async def test_an_event_to_a_job_that_ended_is_refused(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    job_id = await waiting_order(harness.forge)
    await admin.post("/api/jobs/cancel", json={"ids": [job_id]})
    late = await admin.post("/api/events", json={"name": "paid", "job_id": job_id})
    assert (late.status_code, late.json()["code"]) == (409, "refused")
    both = await admin.post("/api/events", json={"name": "paid", "job_id": job_id, "key": "7"})
    assert both.status_code == 400


async def test_a_viewer_reads_and_does_not_send(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    job_id = await waiting_order(harness.forge)
    async with harness.client(Role.VIEWER) as viewer:
        for path in (f"/api/jobs/{job_id}/steps?values=1", "/api/events", "/api/waits"):
            assert (await viewer.get(path)).status_code == 200
        sent = await viewer.post("/api/events", json={"name": "paid", "key": "7"})
        assert sent.status_code == 403
        retried = await viewer.post(f"/api/jobs/{job_id}/retry", json={"from": "charge"})
        assert retried.status_code == 403
    assert (await admin.get("/api/waits")).json()["waits"] != []


async def test_another_site_cannot_send(harness: WebHarness, admin: httpx.AsyncClient) -> None:
    """A browser that is logged in by a cookie, and a page of another site."""
    await waiting_order(harness.forge)
    async with harness.client(None) as browser:
        login = await browser.post("/login", data={"password": "correct horse battery"})
        assert login.status_code == 303
        headers = {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        answer = await browser.post("/api/events", json={"name": "paid"}, headers=headers)
        assert answer.status_code == 403
    assert (await admin.get("/api/events")).json()["events"] == []
