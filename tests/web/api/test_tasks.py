"""Tasks and tags over HTTP, on every backend."""

from typing import Any

import httpx

from tests.web.harness import WebHarness

_TAG = "tenant:a/b é?&=#%"


async def test_tasks_and_tags_after_a_drain(harness: WebHarness, admin: httpx.AsyncClient) -> None:
    """``forge.drain`` counts as a worker does, and what it counted is read at once."""

    @harness.forge.task
    async def bill(number: int) -> int:
        return number

    await bill.using(tags=[_TAG]).aenqueue(1)
    await bill.aenqueue(2)
    await harness.forge.adrain()
    for range_name in ("1h", "24h", "7d"):
        listed = await _get(admin, "/api/tasks", range=range_name)
        [task] = [task for task in listed["tasks"] if task["name"] == "bill"]
        assert (task["enqueued"], task["done"], task["backlog"]) == (2, 2, 0)
        detail = await _get(admin, "/api/tasks/bill", range=range_name)
        assert sum(bucket["runs"] for bucket in detail["histogram"]) == 2
        tags = await _get(admin, "/api/tags", range=range_name)
        assert [(tag["tag"], tag["numbers"]["runs"]) for tag in tags["tags"]] == [(_TAG, 1)]
        tag = await _get(admin, "/api/tags/show", tag=_TAG, range=range_name)
        assert [one["kind"] for one in tag["tasks"]] == ["bill"]
    queues = await _get(admin, "/api/tasks", by="queue")
    assert [queue["name"] for queue in queues["tasks"]] == ["default"]


async def _get(admin: httpx.AsyncClient, path: str, **params: str) -> dict[str, Any]:
    response = await admin.get(path, params=params)
    assert response.status_code == 200, response.text
    return response.json()
