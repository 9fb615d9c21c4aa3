"""Queues, workers, schedules, limits and health over HTTP."""

import httpx

from tests.web.harness import WebHarness


async def test_a_queue_is_created_changed_and_paused(admin: httpx.AsyncClient) -> None:
    assert (await admin.get("/api/queue/mail")).status_code == 404
    assert (await admin.put("/api/queue/mail", json={"slots": 3})).json()["slots"] == 3
    changes = {
        "max-workers": {"n": 7},
        "paused": {"paused": True},
        "retention": {"done_days": 2, "dead_days": None},
        "backoff": {"enabled": True, "base_seconds": 5, "max_seconds": 60},
    }
    for what, body in changes.items():
        response = await admin.post(f"/api/queue/mail/{what}", json=body)
        assert (response.status_code, response.content) == (204, b"")
    (seen,) = (await admin.get("/api/queue/overview")).json()
    assert (seen["slots"], seen["paused"], seen["backoff_base_s"]) == (7, True, 5.0)
    assert (seen["retain_done_s"], seen["retain_dead_s"]) == (172_800.0, None)
    assert (await admin.get("/api/queue/workers")).json()["unassigned_queues"] == ["mail"]


async def test_unserved_queues_are_reported(admin: httpx.AsyncClient) -> None:
    """Queues with settings or waiting jobs, except those without slots, which scripts pull from."""
    await admin.put("/api/queue/idle", json={"slots": 3})
    await admin.put("/api/queue/pulled", json={"slots": 0})
    for queue in ("pulled", "sudden"):
        job = {"kind": "send", "queue_name": queue}
        assert (await admin.post("/api/jobs/enqueue", json=job)).status_code == 200
    unserved = (await admin.get("/api/queue/workers")).json()["unassigned_queues"]
    assert unserved == ["idle", "sudden"]
    assert (await admin.get("/api/health/findings")).json()["unserved_queues"] == unserved
    assert "No living worker serves idle, sudden:" in (await admin.get("/workers")).text


async def test_a_schedule_is_created_edited_triggered_and_deleted(
    admin: httpx.AsyncClient,
) -> None:
    new = {"name": "nightly", "expression": "0 3 * * *", "kind": "clean", "payload": {"token": "x"}}
    created = (await admin.post("/api/cron", json=new)).json()
    assert (created["next_at"][11:16], created["payload"]) == ("03:00", {"token": "***"})
    assert (await admin.post("/api/cron", json=new)).status_code == 409
    edited = await admin.put("/api/cron/nightly", json={"expression": "0 4 * * *", "tz": "UTC"})
    assert edited.json()["next_at"][11:16] == "04:00"
    wrong = await admin.post("/api/cron/nightly/expr", json={"expr": "61 * * * *"})
    assert (wrong.status_code, wrong.json()["kind"]) == (400, "validation")
    assert (await admin.post("/api/cron/nightly/dedupe", json={"dedupe": False})).status_code == 204
    fired = (await admin.post("/api/cron/nightly/trigger")).json()
    assert (await admin.get(f"/api/jobs/inspect/{fired['job_id']}")).json()["row"][
        "kind"
    ] == "clean"
    assert len((await admin.get("/api/cron/nightly/history")).json()) == 1
    assert (await admin.post("/api/cron/nightly/enabled", json={"enabled": False})).is_success
    assert (await admin.get("/api/cron")).json()[0]["enabled"] is False
    assert (await admin.delete("/api/cron/nightly")).status_code == 204
    assert (await admin.post("/api/cron/nightly/trigger")).status_code == 404


async def test_limits_and_rates_are_set(admin: httpx.AsyncClient) -> None:
    put = await admin.put("/api/limits/task:send", json={"concurrency": 2, "rate": "50/m"})
    assert (put.json()["concurrency"], put.json()["by_operator"]) == (2, True)
    rate = (await admin.post("/api/rates", json={"scope": "smtp/eu", "rate": "5/s"})).json()
    assert rate["available"] == 5
    assert (await admin.post("/api/rates/drain", json={"scope": "smtp/eu"})).json()[
        "available"
    ] == 0
    seen = (await admin.get("/api/limits")).json()
    assert [limit["name"] for limit in seen["limits"]] == ["task:send"]
    assert [rate["scope"] for rate in seen["rates"]] == ["smtp/eu"]
    assert (await admin.post("/api/limits/task:send/reset")).status_code == 204


async def test_charts_health_and_metrics(harness: WebHarness, admin: httpx.AsyncClient) -> None:
    await harness.forge.aenqueue("send", {}, queue="mail")
    points = (await admin.get("/api/queue/timeline?bucket_secs=1")).json()
    assert sum(point["enqueued"] for point in points) == 1
    same = "from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z"
    assert (await admin.get(f"/api/queue/timeline?{same}")).json() == []
    many = "from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z"
    assert (await admin.get(f"/api/queue/timeline?{many}")).status_code == 400
    series = (await admin.get("/api/queue/metric-series?queue=mail&kind=send")).json()
    assert sum(point["enqueued"] for point in series["points"]) == 1
    health = (await admin.get("/api/health/findings")).json()
    assert health["ok"] is False
    assert any(finding["subject"] == "queue mail" for finding in health["findings"])
    text = (await admin.get("/metrics")).text
    assert 'forge_jobs{queue="mail",status="pending"} 1' in text
    assert (await admin.get("/healthz")).text == "ok\n"
    assert (await admin.get("/readyz")).text == "ok\n"
    assert (await admin.get("/api/storage/info")).json()["backend"] in (
        "memory",
        "sqlite",
        "postgres",
    )


async def test_quieting_an_unknown_worker_is_not_found(admin: httpx.AsyncClient) -> None:
    response = await admin.post("/api/workers/nobody/quiet", json={})
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
