"""Invalid input and conflicts: each response names the field and a remedy."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from forge_jobs.core.selection import BulkAction, Selection
from forge_jobs.web import Role
from tests.web.harness import WebHarness, serve_on_socket, web_harness

_UNKNOWN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
_BAD: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/api/jobs/inspect/nonsense", None, 400, "id"),
    ("GET", f"/api/jobs/inspect/{_UNKNOWN}", None, 404, "there is no job"),
    ("GET", "/api/jobs?status=lost", None, 400, "status"),
    ("GET", "/api/jobs?colour=red", None, 400, "colour"),
    ("GET", "/api/jobs?limit=0", None, 400, "limit"),
    ("GET", "/api/jobs?limit=5&limit=6", None, 400, "limit"),
    ("GET", "/api/jobs?from=yesterday", None, 400, "from"),
    ("GET", "/api/jobs?from=2026-01-31T09:00:00", None, 400, "from"),
    ("GET", "/api/jobs?from=0001-01-01T00:00:00%2B14:00", None, 400, "from"),
    ("GET", "/api/jobs?after=nonsense", None, 400, "cursor"),
    ("GET", "/api/jobs?tag=a%00b", None, 400, "tag"),
    ("GET", "/api/audit?after=nonsense", None, 400, "after"),
    ("GET", f"/api/bulk/{_UNKNOWN}", None, 404, "audit"),
    ("POST", "/api/jobs/list", {"offset": 10_001}, 400, "offset"),
    ("POST", "/api/jobs/list", {"offset": 1, "after": "x"}, 400, "offset"),
    ("POST", "/api/jobs/list", {"filter": {"queues": ["a b"]}}, 400, "filter.queues"),
    ("POST", "/api/jobs/list", {"filter": {"error": "a\0b"}}, 400, "NUL"),
    ("POST", "/api/jobs/list", [], 400, "body"),
    ("POST", "/api/jobs/retry", {"ids": []}, 400, "ids"),
    ("POST", "/api/jobs/retry", {"ids": ["x"]}, 400, "ids"),
    ("POST", "/api/jobs/retry-all-by-status", {"status": "done"}, 400, "retry does not apply"),
    ("POST", "/api/jobs/enqueue", {"kind": "a b"}, 400, "kind"),
    ("POST", "/api/jobs/enqueue", {"kind": "a", "run_at": "2026-01-01T00:00:00"}, 400, "run_at"),
    ("POST", "/api/jobs/enqueue", {"kind": "a", "payload": {"x": "\0"}}, 400, "NUL"),
    ("POST", "/api/bulk", {"action": "retry"}, 400, "filter"),
    ("POST", "/api/bulk", {"action": "explode", "ids": [_UNKNOWN]}, 400, "action"),
    ("POST", "/api/queue/nowhere/paused", {"paused": True}, 404, "nowhere"),
    ("POST", "/api/queue/mail/max-workers", {"n": -1}, 400, "n"),
    ("POST", "/api/queue/mail/retention", {}, 400, "say at least one thing"),
    ("POST", "/api/cron", {"name": "n", "expression": "x", "kind": "k"}, 400, "expression"),
    ("POST", "/api/cron", {"name": "n", "expression": "@daily", "kind": "k", "tz": "Mars"},
     400, "Mars"),
    ("DELETE", "/api/cron/nothing", None, 404, "nothing"),
    ("PUT", "/api/limits/nonsense", {"concurrency": 1}, 400, "name"),
    ("POST", "/api/scopes/open", {"scope": ""}, 400, "scope"),
    ("GET", "/api/nothing", None, 404, "openapi.json"),
    ("GET", "/api/tasks?range=2y", None, 400, "range"),
    ("GET", "/api/tasks?after=x", None, 400, "after"),
    ("GET", "/api/tasks/nobody", None, 404, "nobody"),
    ("GET", "/api/tasks/a%0Ab", None, 400, "kind"),
    ("GET", "/api/tasks/a%2Fb%0A", None, 404, "openapi.json"),
    ("GET", "/api/tags/show", None, 400, "tag"),
    ("GET", "/api/tags/show?tag=a%2Fb%0A%C3%A9", None, 404, "no run"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "status", "word"), _BAD)
async def test_an_invalid_field_is_named(
    admin: httpx.AsyncClient, method: str, path: str, body: Any, status: int, word: str
) -> None:
    given = {} if body is None else {"json": body}
    response = await admin.request(method, path, **given)
    assert response.status_code == status, response.text
    problem = response.json()
    assert set(problem) <= {"kind", "code", "msg", "field", "retry_after_secs"}
    assert word in problem["msg"] + problem.get("field", "")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"{", "application/json"),
        (b"\xff\xfe", "application/json"),
        (b"{}", "text/plain"),
        (b"[" * 100_000, "application/json"),
        (b'{"filter": {"tag": "\\ud800"}}', "application/json"),
    ],
)
async def test_what_is_not_json_is_refused(
    admin: httpx.AsyncClient, content: bytes, kind: str
) -> None:
    response = await admin.post("/api/jobs/list", content=content, headers={"content-type": kind})
    assert (response.status_code, response.json()["field"]) == (400, "body")


async def test_two_operators_at_once_retry_each_job_once(harness: WebHarness) -> None:
    ids = [(await harness.forge.aenqueue("send", {}, queue="mail")).id for _ in range(20)]
    async with harness.client(Role.OPERATOR) as one, harness.client(Role.ADMIN) as other:
        await one.post("/api/jobs/cancel", json={"ids": ids, "reason": "test"})
        responses = await asyncio.gather(
            *(client.post("/api/jobs/retry", json={"ids": ids}) for client in (one, other))
        )
        assert sum(response.json()["changed"] for response in responses) == 20
        assert sum(response.json()["skipped"] for response in responses) == 20
        entries = (await other.get("/api/audit?action=retry")).json()["entries"]
        assert {entry["actor"] for entry in entries} == {"web:otto", "web:ada"}


async def test_two_concurrent_edits_of_a_schedule_both_succeed(harness: WebHarness) -> None:
    new = {"name": "n", "expression": "@daily", "kind": "k"}
    async with harness.client(Role.ADMIN) as one, harness.client(Role.OPERATOR) as other:
        await one.post("/api/cron", json=new)
        responses = await asyncio.gather(
            one.put("/api/cron/n", json={"tz": "Europe/Paris"}),
            other.put("/api/cron/n", json={"expression": "@hourly"}),
        )
        assert [response.status_code for response in responses] == [200, 200]
        schedule = (await one.get("/api/cron/n")).json()
        assert (schedule["tz"], schedule["expression"]) == ("Europe/Paris", "@hourly")


async def test_a_job_that_is_deleted_under_an_open_page_is_not_found(harness: WebHarness) -> None:
    job = await harness.forge.aenqueue("send", {}, queue="mail")
    store = await harness.forge.aready()
    async with harness.client(Role.ADMIN) as client:
        assert (await client.get(f"/jobs/{job.id}")).status_code == 200
        await store.jobs.act(BulkAction.DELETE, Selection(ids=(job.id,)), limit=1)
        assert (await client.get(f"/jobs/{job.id}")).status_code == 404
        assert (await client.post(f"/api/jobs/duplicate/{job.id}", json={})).status_code == 404


def test_a_real_server_refuses_a_chunked_body_that_grows_too_large(tmp_path: Path) -> None:
    def endless() -> Any:
        for _ in range(48):
            yield b" " * 65_536

    headers = {"authorization": "Bearer forge_test_admin"}
    with (
        web_harness(f"sqlite:///{tmp_path}/web.db") as harness,
        serve_on_socket(harness.app) as address,
        httpx.Client(base_url=address, headers=headers) as client,
    ):
        response = client.post("/api/jobs/list", content=endless())
        assert response.status_code == 413
        assert client.get("/api/jobs").status_code == 200


async def test_an_unknown_field_names_the_allowed_ones(admin: httpx.AsyncClient) -> None:
    plain = (await admin.post("/api/jobs/enqueue", json={"kind": "a", "queu": "mail"})).json()
    assert "use kind, payload, queue," in plain["msg"]
    nested = (await admin.post("/api/jobs/count", json={"filter": {"queue": "a"}})).json()
    assert (nested["field"], "use queues, kinds," in nested["msg"]) == ("filter", True)


async def test_old_names_are_taken_and_must_not_contradict_the_new_ones(
    admin: httpx.AsyncClient,
) -> None:
    for name in ("queue", "queue_name"):
        job = {"kind": "send", name: f"by-{name}"}
        job_id = (await admin.post("/api/jobs/enqueue", json=job)).json()["id"]
        row = (await admin.get(f"/api/jobs/inspect/{job_id}")).json()["row"]
        assert row["queue"] == f"by-{name}"
        found = await admin.get("/api/queue/processes", params={name: "mail"})
        assert found.json() == []
    both = {"kind": "send", "queue": "a", "queue_name": "b"}
    refused = (await admin.post("/api/jobs/enqueue", json=both)).json()
    assert "queue_name is the old name of queue" in refused["msg"]
    for body in ({"n": 3}, {"slots": 4}):
        assert (await admin.put("/api/queue/mail", json={"slots": 1})).is_success
        assert (await admin.post("/api/queue/mail/max-workers", json=body)).is_success
    assert "slots" in (await admin.post("/api/queue/mail/max-workers", json={})).json()["msg"]
