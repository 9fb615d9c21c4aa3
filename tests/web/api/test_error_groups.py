"""Error groups over HTTP: lists, one group, what it changes, and who may."""

from typing import Any

import httpx
import pytest

from forge_jobs import Dead, Forge
from forge_jobs.core.error_groups import GroupState
from forge_jobs.core.errors import BadOption
from forge_jobs.web import Role
from tests.web.harness import WebHarness


@pytest.fixture
async def failing(harness: WebHarness) -> Forge:
    """Two jobs died of one cause, one of another."""
    forge = harness.forge

    @forge.task(queue="post", max_attempts=1)
    async def deliver(to: str) -> None:
        if to == "nobody":
            raise Dead("password=hunter2 is wrong")
        raise LookupError(f"no mailbox for {to!r}")

    for to in ("ann", "bob", "nobody"):
        await deliver.aenqueue(to)
    await forge.adrain(queues=["post"])
    return forge


async def groups(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    response = await client.get("/api/errors", params=query)
    assert response.status_code == 200, response.text
    return response.json()["groups"]


@pytest.mark.usefixtures("failing")
async def test_groups_have_counts_and_samples(admin: httpx.AsyncClient) -> None:
    [most, other] = await groups(admin, sort="count", queue="post")
    assert (most["title"], most["count"]) == ("LookupError: no mailbox for <value>", 2)
    assert most["frame"] == "test_error_groups.py in deliver"
    assert most["kinds"] == [{"value": "deliver", "count": 2}]
    assert "hunter2" not in str(other)
    detail = (await admin.get(f"/api/errors/{most['id']}")).json()
    [sample, _] = detail["samples"]
    assert sample["status"] == "dead"
    assert "LookupError: no mailbox for" in sample["traceback"]
    job = (await admin.get(f"/api/jobs/inspect/{sample['id']}")).json()
    assert job["row"]["errors"][0]["group"] == most["id"]
    assert (await admin.get("/api/errors/none")).status_code == 404
    assert (await admin.get("/api/errors?state=bad")).status_code == 400


@pytest.mark.usefixtures("failing")
async def test_a_group_is_resolved_by_operators_alone(harness: WebHarness) -> None:
    async with harness.client(Role.VIEWER) as viewer:
        [group, _] = await groups(viewer, sort="count", queue="post")
        path = f"/api/errors/{group['id']}"
        assert (await viewer.post(f"{path}/resolve")).status_code == 403
    async with harness.client(Role.OPERATOR) as operator:
        assert (await operator.post(f"{path}/resolve")).json()["resolved_by"] == "web:otto"
        assert [one["id"] for one in await groups(operator, state="resolved")] == [group["id"]]
        assert (await operator.post(f"{path}/reopen")).json()["state"] == "open"


@pytest.mark.usefixtures("failing")
async def test_the_jobs_of_a_group_are_retried(admin: httpx.AsyncClient) -> None:
    [group, _] = await groups(admin, sort="count", queue="post")
    path = f"/api/errors/{group['id']}/jobs"
    preview = (await admin.post(f"{path}/preview", json={"action": "retry"})).json()
    assert preview == {"jobs": 2, "more": False}
    assert (await admin.post(path, json={"action": "delete"})).status_code == 400
    operation = (await admin.post(path, json={"action": "retry", "kind": "deliver"})).json()
    assert operation["expected"] == 2


@pytest.mark.usefixtures("failing")
async def test_the_pages_list_and_retry_the_jobs_of_a_group(admin: httpx.AsyncClient) -> None:
    [group, _] = await groups(admin, sort="count", queue="post")
    body = {"filter": {"group": group["id"], "statuses": ["dead"]}}
    assert (await admin.post("/api/jobs/list", json=body)).json()["total"] == 2
    line = f"kind:deliver group:{group['id']}"
    assert len((await admin.get("/api/jobs", params={"query": line})).json()["rows"]) == 2
    assert (await admin.get("/api/jobs", params={"group": "no id"})).status_code == 400
    page = await admin.get(f"/bulk/retry?group={group['id']}&status=dead,failed")
    assert '<b class="reach">2</b>' in page.text
    form = {"all": "yes", "query": f"group:{group['id']}", "status": "dead,failed", "back": "/"}
    assert (await admin.post("/act/jobs/retry", data=form)).status_code == 303
    assert (await admin.post("/api/jobs/list", json=body)).json()["total"] == 0
    for bad in ("/errors/none", "/errors/%00", "/errors/a'b"):
        assert (await admin.get(bad)).status_code == 404
    for bad in ("/errors?range=2h", "/errors?state=x", "/errors?sort=x", "/jobs?group=%00"):
        assert (await admin.get(bad)).status_code in (200, 400), bad


async def test_application_code_iterates_and_resolves(failing: Forge) -> None:
    found = [group async for group in failing.errors(since="1h", queue="post")]
    assert sorted(group.count for group in found) == [1, 2]
    [most] = [group for group in found if group.count == 2]
    assert await failing.jobs(group=most.id).acount() == 2
    with pytest.raises(BadOption, match="no id of an error group"):
        failing.jobs(group="no id")
    assert await failing.errors(kind="deliver", state=GroupState.OPEN).aresolve() == 2
    assert [group async for group in failing.errors(state="open", queue="post")] == []
    with pytest.raises(BadOption, match="at most 14 days"):
        failing.errors(since="15d")
    with pytest.raises(BadOption, match="open, resolved, returned"):
        failing.errors(state="closed")
