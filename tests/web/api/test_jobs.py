"""Jobs over HTTP: lists, searches, single jobs, actions, bulk operations."""

import asyncio
from typing import Any

import httpx
import pytest
from markupsafe import escape

from forge_jobs import Retry
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Selection
from forge_jobs.ops.actions import JobActions
from tests.web.harness import WebHarness


async def enqueue(harness: WebHarness, count: int, **options: object) -> list[str]:
    jobs = [
        await harness.forge.aenqueue("send", {"n": n, "to": f"person {n}"}, queue="mail", **options)  # type: ignore[arg-type]
        for n in range(count)
    ]
    return [job.id for job in jobs]


async def enqueue_cancelled(harness: WebHarness, count: int) -> list[str]:
    ids = await enqueue(harness, count)
    store = await harness.forge.aready()
    await JobActions(store, actor="test").cancel(Selection(ids=tuple(ids)))
    return ids


async def test_pages_by_cursor_and_by_offset_hold_the_same_jobs(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    ids = await enqueue(harness, 7)
    first = (await admin.post("/api/jobs/list", json={"limit": 3})).json()
    assert [row["id"] for row in first["rows"]] == ids[::-1][:3]
    assert (first["total"], first["more"]) == (7, False)
    by_cursor = await admin.post("/api/jobs/list", json={"limit": 3, "after": first["next"]})
    by_offset = await admin.post("/api/jobs/list", json={"limit": 3, "offset": 3})
    assert by_cursor.json()["rows"] == by_offset.json()["rows"]
    assert [row["id"] for row in by_offset.json()["rows"]] == ids[::-1][3:6]
    assert (await admin.post("/api/jobs/list", json={"offset": 7})).json()["rows"] == []


async def test_a_filter_accepts_in_progress_for_running(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    await enqueue(harness, 1)
    for word in ("in_progress", "running"):
        response = await admin.get("/api/jobs", params={"status": word})
        assert response.status_code == 200
        assert response.json()["rows"] == []
    both = await admin.get("/api/jobs?status=pending,in_progress&queue=mail&queue=video")
    assert len(both.json()["rows"]) == 1


async def test_a_search_in_payloads_continues_where_it_stopped(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    ids = await enqueue(harness, 12)
    wanted = {"filter": {"payload_search": "PERSON 1"}, "limit": 2}
    first = (await admin.post("/api/jobs/list", json=wanted)).json()
    assert [row["id"] for row in first["rows"]] == [ids[11], ids[10]]
    assert (first["total"], first["looked"]) == (None, 2)
    rest = (await admin.post("/api/jobs/list", json={**wanted, "after": first["next"]})).json()
    assert [row["id"] for row in rest["rows"]] == [ids[1]]
    assert (rest["looked"], rest["next"]) == (10, None)


async def test_a_search_does_not_find_redacted_values(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    await harness.forge.aenqueue("send", {"api_key": "sesame-42", "note": "plain"}, queue="mail")
    for text, found in (("sesame", 0), ("plain", 1)):
        body = {"filter": {"payload_search": text}}
        assert len((await admin.post("/api/jobs/list", json=body)).json()["rows"]) == found


async def test_rare_options_are_shown_for_jobs_that_have_some(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    store = await harness.forge.aready()
    options = {"note": "<at night>"}
    plain, optioned = await store.jobs.enqueue(
        [NewJob(kind="send", queue="mail"), NewJob(kind="send", queue="mail", options=options)]
    )
    shown = (await admin.get(f"/api/jobs/inspect/{optioned.id}")).json()
    assert shown["row"]["options"] == options
    other = (await admin.get(f"/api/jobs/inspect/{plain.id}")).json()
    assert "options" not in other["row"]
    page = (await admin.get(f"/jobs/{optioned.id}")).text
    assert "<dt>Options</dt><dd><code>{&#34;note&#34;:&#34;&lt;at night&gt;&#34;}</code>" in page
    assert "<dt>Options</dt>" not in (await admin.get(f"/jobs/{plain.id}")).text


async def test_an_enqueued_job_says_whether_its_key_was_taken(admin: httpx.AsyncClient) -> None:
    body = {"kind": "send", "payload": {"n": 1}, "dedupe_key": "one", "queue_name": "mail"}
    first, second = [(await admin.post("/api/jobs/enqueue", json=body)).json() for _ in range(2)]
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert first["id"] == second["id"]
    seen = (await admin.get(f"/api/jobs/inspect/{first['id']}")).json()
    assert seen["payload"] == {"n": 1}
    assert seen["row"]["why"][0]["code"] == "no_worker"


async def test_a_copy_keeps_the_secrets_that_were_redacted(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    job = await harness.forge.aenqueue("send", {"token": "deep", "to": "ada"}, queue="mail")
    shown = (await admin.get(f"/api/jobs/inspect/{job.id}")).json()["payload"]
    assert shown == {"token": "***", "to": "ada"}
    response = await admin.post(
        f"/api/jobs/duplicate/{job.id}", json={"payload": {**shown, "to": "grace"}}
    )
    store = await harness.forge.aready()
    copy = await store.jobs.get(response.json()["id"])
    assert copy is not None
    assert copy.payload == b'{"token":"deep","to":"grace"}'


async def test_actions_by_id_return_counts(harness: WebHarness, admin: httpx.AsyncClient) -> None:
    ids = await enqueue_cancelled(harness, 2)
    unknown = ids[0][:10] + "0" * 16
    response = (await admin.post("/api/jobs/retry", json={"ids": [*ids, unknown]})).json()
    assert (response["count"], response["missing"]) == (2, 1)
    again = (await admin.post("/api/jobs/retry", json={"ids": ids})).json()
    assert (again["count"], again["skipped"]) == (0, 2)
    assert (await admin.post(f"/api/jobs/run-now/{ids[0]}")).json() is False
    gone = (await admin.post("/api/jobs/delete", json={"ids": ids})).json()
    assert gone["count"] == 2
    assert (await admin.get(f"/api/jobs/inspect/{ids[0]}")).status_code == 404


async def test_a_bulk_operation_is_previewed_started_and_polled(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    await enqueue_cancelled(harness, 5)
    wish = {"action": "retry", "filter": {"queues": ["mail"], "statuses": ["cancelled"]}}
    assert (await admin.post("/api/bulk/preview", json=wish)).json() == {"jobs": 5, "more": False}
    begun = (await admin.post("/api/bulk", json=wish)).json()
    assert begun["expected"] == 5
    async with asyncio.timeout(30):
        while (seen := (await admin.get(f"/api/bulk/{begun['id']}")).json())["state"] == "running":
            await asyncio.sleep(0.02)
    assert (seen["state"], seen["changed"]) == ("done", 5)
    assert (await admin.get("/api/bulk")).json()[0] == seen


class Unhurried:
    """A job store whose second batch of a cancel waits for an event."""

    def __init__(self, jobs: Any) -> None:
        self._jobs = jobs
        self.steps = 0
        self.go_on = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jobs, name)

    async def act(self, *given: Any, **more: Any) -> Any:
        self.steps += 1
        if self.steps > 1:
            await self.go_on.wait()
        return await self._jobs.act(*given, **more)


async def test_a_bulk_operation_stops_between_batches(
    harness: WebHarness, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await harness.forge.aready()
    for _ in range(13):
        job = harness.forge.aenqueue
        await asyncio.gather(*(job("send", {"n": n}, queue="mail") for n in range(100)))
    wish = {"action": "cancel", "filter": {"queues": ["mail"]}}
    jobs = Unhurried(store.jobs)
    monkeypatch.setattr(store, "jobs", jobs)
    begun = (await admin.post("/api/bulk", json=wish)).json()
    await admin.post(f"/api/bulk/{begun['id']}/stop")
    jobs.go_on.set()
    async with asyncio.timeout(60):
        while (seen := (await admin.get(f"/api/bulk/{begun['id']}")).json())["state"] == "running":
            await asyncio.sleep(0.02)
    assert seen["state"] == "stopped"
    assert 0 < seen["changed"] < 1300


async def test_u1_a_job_is_shown_with_its_tracebacks(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    forge = harness.forge

    @forge.task(queue="mail", max_attempts=2, retry=Retry(delays=[0]))
    async def looks_up(name: str) -> int:
        return {"<a>": 1}[name]

    job = await looks_up.aenqueue("<b>")
    await forge.drain(queues=["mail"])
    await forge.drain(queues=["mail"])
    shown = (await admin.get(f"/api/jobs/inspect/{job.id}")).json()
    code = 'return {"<a>": 1}[name]'
    assert [code in error["traceback"] for error in shown["error_history"]] == [True, True]
    page = (await admin.get(f"/jobs/{job.id}")).text
    assert page.count('<details class="traceback"') == 2
    assert page.count(str(escape(code))) == 2
    assert "<a>" not in page
    listed = (await admin.get("/api/jobs")).text
    assert "Traceback" not in listed
    schema = (await admin.get("/api/openapi.json")).json()["components"]["schemas"]["ErrorView"]
    assert "at most 16 KiB" in schema["properties"]["traceback"]["description"]


async def test_a_query_line_finds_jobs_by_arguments(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    ids = await enqueue(harness, 12)
    found = await admin.get("/api/jobs", params={"query": "kind:send n:1 to:PERSON since:1h"})
    assert [row["id"] for row in found.json()["rows"]] == [ids[1]]
    assert found.json()["rows"][0]["arguments"] == '{"n":1,"to":"person 1"}'
    assert found.json()["looked"] >= 1
    none = await admin.get("/api/jobs", params={"query": "queue:mail", "queue": "video"})
    assert none.status_code == 400
    assert "queue is given twice" in none.json()["msg"]
    wrong = await admin.get("/api/jobs", params={"query": "qeue:mail"})
    assert wrong.status_code == 400
    assert "did you mean queue:?" in wrong.json()["msg"]


async def test_ended_jobs_are_listed_by_their_end(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    first, second, third = await enqueue(harness, 3)
    store = await harness.forge.aready()
    for one in (second, third, first):
        await JobActions(store, actor="test").cancel(Selection(ids=(one,)))
    ended = {"status": "cancelled", "sort": "-ended", "limit": "2"}
    page = (await admin.get("/api/jobs", params=ended)).json()
    assert [row["id"] for row in page["rows"]] == [first, third]
    rest = (await admin.get("/api/jobs", params={**ended, "after": page["next"]})).json()
    assert [row["id"] for row in rest["rows"]] == [second]
    wrong = await admin.get("/api/jobs", params={"sort": "ended"})
    assert wrong.status_code == 400
    assert "dead and cancelled" in wrong.json()["msg"]
    html = (await admin.get("/jobs?status=cancelled")).text
    assert 'aria-sort="descending"><a href="/jobs?status=cancelled&amp;sort=ended"' in html
    assert [html.index(f'id="job-{one}"') for one in (first, third, second)] == sorted(
        html.index(f'id="job-{one}"') for one in (first, second, third)
    )
    turned = (await admin.get("/jobs?status=cancelled&sort=ended")).text
    assert 'aria-sort="ascending"' in turned
    assert turned.index(f'id="job-{second}"') < turned.index(f'id="job-{first}"')
