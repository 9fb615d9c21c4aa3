"""Alert rules over HTTP and on their page: what they change, who may, and what is never shown."""

import httpx

from forge_jobs.core.alert_rule import new_rule
from forge_jobs.engine.services.alerts import Alerts
from forge_jobs.store.alerts import AlertRules
from forge_jobs.web import Role
from tests.web.harness import WebHarness

SECRET = "whsec_c2VjcmV0LXNlY3JldA=="
RULE = {
    "name": "none", "condition": "no_worker", "for_s": 0, "url": "https://hooks.example/T0/path",
    "secret": SECRET,
}  # fmt: skip


async def test_a_rule_is_added_edited_tested_and_removed(admin: httpx.AsyncClient) -> None:
    added = (await admin.post("/api/alerts/rules", json=RULE)).json()
    assert (added["url"], added["signed"]) == ("https://hooks.example/…", True)
    assert (await admin.post("/api/alerts/rules", json=RULE)).status_code == 409
    path = "/api/alerts/rules/none"
    edited = (await admin.put(path, json={"queue": "mail", "secret": None})).json()
    assert (edited["queue"], edited["signed"]) == ("mail", False)
    job_id = (await admin.post(f"{path}/test")).json()["job_id"]
    assert (await admin.get(f"/api/jobs/inspect/{job_id}")).status_code == 200
    assert (await admin.post(f"{path}/enabled", json={"enabled": False})).json()["state"] == "off"
    assert (await admin.delete(path)).status_code == 204
    assert (await admin.get(path)).status_code == 404


async def test_only_admins_say_where_messages_go(harness: WebHarness) -> None:
    async with harness.client(Role.OPERATOR) as operator:
        assert (await operator.post("/api/alerts/rules", json=RULE)).status_code == 403
        assert (await operator.post("/act/alerts", data=RULE)).status_code == 403
    async with harness.client(Role.VIEWER) as viewer:
        assert (await viewer.post("/api/alerts/rules/none/test")).status_code == 403


async def test_page_and_api_show_episodes_but_neither_path_nor_secret(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    store = await harness.forge.aready()
    rule = new_rule("none", "no_worker", hold=0, url=RULE["url"], secret=SECRET)
    await AlertRules(store).put("none", lambda known: rule)
    await store.queues.ensure("mail", slots=1)
    await Alerts(store).tick()
    (episode,) = (await admin.get("/api/alerts/episodes", params={"open": "true"})).json()
    assert (episode["rule"], episode["subject"], episode["closed_at"]) == ("none", "mail", None)
    page = (await admin.get("/alerts")).text
    assert "1 open" in page
    assert "https://hooks.example/…" in page
    texts = page + (await admin.get("/api/alerts/rules")).text
    texts += (await admin.get("/jobs")).text + (await admin.get("/audit")).text
    texts += (await admin.get(f"/api/jobs/inspect/{episode['opened_job']}")).text
    assert "T0/path" not in texts
    assert SECRET not in texts
