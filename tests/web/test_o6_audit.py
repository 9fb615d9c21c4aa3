"""O6: the audit has before and after, ids of bulk actions, address, actor and role."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from forge_jobs.cli.commands import run
from forge_jobs.core.audit import MAX_IDS, AuditEntry
from forge_jobs.web import Role
from tests.web.harness import WebHarness, web_harness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[WebHarness]:
    harness = web_harness(f"sqlite:///{tmp_path}/audit.db")
    yield harness
    await harness.forge.aclose()


async def newest(client: httpx.AsyncClient, action: str) -> dict[str, Any]:
    entries = (await client.get("/api/audit", params={"action": action})).json()["entries"]
    return next(entry for entry in entries if entry["action"] == action)


async def test_o6_changed_settings_are_recorded_with_before_and_after(harness: WebHarness) -> None:
    async with harness.client(Role.ADMIN) as client:

        async def post(path: str, **body: Any) -> None:
            response = await client.post(f"/api{path}", json=body)
            assert response.is_success, response.text

        await client.put("/api/queue/mail", json={"slots": 3})
        await post("/queue/mail/max-workers", n=5)
        await post("/queue/mail/paused", paused=True)
        await post("/cron", name="nightly", expression="0 3 * * *", kind="send", payload={"a": 1})
        edited = await client.put(
            "/api/cron/nightly",
            json={"expression": "0 4 * * *", "payload": {"a": 2, "pwd": "s3cret"}},
        )
        assert edited.status_code == 200, edited.text
        slots = await newest(client, "set queue")
        pause = await newest(client, "pause")
        edit = await newest(client, "edit schedule")
    assert (slots["before"], slots["after"]) == ({"slots": 3}, {"slots": 5})
    assert (pause["before"], pause["after"]) == ({"paused": False}, {"paused": True})
    assert edit["before"] == {"expression": "0 3 * * *"}
    assert edit["after"] == {"expression": "0 4 * * *"}
    assert edit["detail"]["payload_changed"] == "a, pwd"
    assert "s3cret" not in str(edit)
    for entry in (slots, pause, edit):
        assert (entry["actor"], entry["role"], entry["address"]) == ("web:ada", "admin", "10.1.2.3")


async def test_o6_a_bulk_action_has_the_ids_of_its_first_jobs(harness: WebHarness) -> None:
    jobs = [await harness.forge.aenqueue("send", {"n": n}, queue="mail") for n in range(120)]
    ids = [job.id for job in jobs]
    async with harness.client(Role.OPERATOR) as client:
        await client.post("/api/jobs/cancel", json={"ids": ids[:3]})
        by_id = await newest(client, "cancel")
        started = await client.post(
            "/api/bulk", json={"action": "cancel", "filter": {"queues": ["mail"]}}
        )
        assert started.status_code == 200, started.text
        await harness.app.operations.close()
        by_filter = await newest(client, "cancel")
    assert by_id["ids"] == ids[:3]
    assert len(by_filter["ids"]) == MAX_IDS
    assert set(by_filter["ids"]) <= set(ids[3:])
    assert by_filter["detail"]["changed"] == 117


async def test_o6_limits_are_recorded_with_before_and_after(harness: WebHarness) -> None:
    from forge_jobs.ops.audit import read_entries
    from forge_jobs.ops.declared_limits import LimitActions
    from forge_jobs.ops.rate_limits import RateLimitActions

    store = await harness.forge.aready()
    limits = LimitActions(store, actor="ada")
    await limits.set("task:send", concurrency=2)
    await limits.set("task:send", concurrency=4)
    rates = RateLimitActions(store, actor="ada")
    await rates.set_rate("smtp", "5/s")
    await rates.set_rate("smtp", "9/s")
    entries = (await read_entries(store, action="set limit")).entries
    assert (entries[2].before, entries[2].after) == ({"concurrency": 2}, {"concurrency": 4})
    assert entries[0].before == {"refill_per_s": 5.0, "capacity": 5.0}
    assert entries[0].after == {"refill_per_s": 9.0, "capacity": 9.0}


async def test_o6_page_and_command_show_before_after_address_and_ids(
    harness: WebHarness,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ids = [(await harness.forge.aenqueue("send", {}, queue="mail")).id for _ in range(2)]
    async with harness.client(Role.ADMIN) as client:
        for n in (3, 5):
            await client.put("/api/queue/mail", json={"slots": n})
        await client.post("/api/jobs/cancel", json={"ids": ids})
        page = (await client.get("/audit")).text
    assert "slots 3 → <b>5</b>" in page
    assert "10.1.2.3" in page
    assert "web:ada (admin)" in page
    assert all(f"/jobs/{job_id}" in page for job_id in ids)
    monkeypatch.setenv("COLUMNS", "200")
    url = f"sqlite:///{tmp_path}/audit.db"
    # a command runs a loop of its own
    assert await asyncio.to_thread(run, ["audit", "--url", url]) == 0
    shown = capsys.readouterr().out
    assert "slots=3→5" in shown
    assert "web:ada" in shown
    assert "10.1.2.3" in shown
    assert await asyncio.to_thread(run, ["audit", "--url", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"][0]["ids"] == ids


def test_o6_entries_of_earlier_versions_are_readable() -> None:
    old = b'{"at":5,"actor":"ada","action":"pause","subject":"mail","detail":{"n":1},"id":0}'
    entry = msgspec.json.decode(old, type=AuditEntry)
    assert (entry.role, entry.address, entry.before, entry.ids) == (None, None, {}, ())
    assert entry.detail == {"n": 1}


async def test_o6_secrets_in_subjects_and_details_are_hidden(harness: WebHarness) -> None:
    store = await harness.forge.aready()
    await store.metrics.record_action(
        AuditEntry(
            at=1, actor="x", action="old", subject="jobs where error=token=s3cret",
            detail={"api-key": "s3cret"}, before={"pwd": "s3cret"}, after={"note": "jwt: s3cret"},
        )
    )  # fmt: skip
    async with harness.client(Role.ADMIN) as client:
        assert "s3cret" not in (await client.get("/api/audit")).text
        assert "s3cret" not in (await client.get("/audit")).text
