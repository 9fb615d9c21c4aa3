"""Saved views: over HTTP, on the page, on the command line's operations, with roles and audit."""

import httpx
import pytest

from forge_jobs.core.errors import BadOption, Full, NotFound
from forge_jobs.ops import saved_views
from forge_jobs.ops.audit import read_entries
from forge_jobs.ops.saved_views import MAX_VIEWS, SavedViewActions
from forge_jobs.web import Role
from tests.web.harness import WebHarness


async def test_a_view_is_saved_listed_used_and_deleted(
    harness: WebHarness, admin: httpx.AsyncClient
) -> None:
    line = "kind:send status:dead since:1d"
    async with harness.client(Role.VIEWER) as viewer:
        assert (await viewer.put("/api/views/dead", json={"query": line})).status_code == 403
    async with harness.client(Role.OPERATOR) as operator:
        saved = await operator.put("/api/views/dead mail", json={"query": f"  {line} "})
        assert saved.json() == {"name": "dead mail", "query": line}
        wrong = await operator.put("/api/views/other", json={"query": "qeue:mail"})
        assert wrong.status_code == 400
        assert "did you mean queue:?" in wrong.json()["msg"]
    async with harness.client(Role.VIEWER) as viewer:
        assert (await viewer.get("/api/views")).json() == [{"name": "dead mail", "query": line}]
        page = (await viewer.get("/jobs")).text
        assert 'href="/jobs?query=kind%3Asend+status%3Adead+since%3A1d"' in page
        assert "/act/views/delete" not in page
        chosen = (await viewer.get("/jobs", params={"query": line})).text
        assert 'aria-current="true">dead mail</a>' in chosen
    gone = await admin.post("/act/views/delete", data={"name": "dead mail"})
    assert gone.status_code == 303
    assert (await admin.get("/api/views")).json() == []
    store = await harness.forge.aready()
    entries = (await read_entries(store)).entries
    assert [(one.action, one.subject) for one in entries[:2]] == [
        ("delete view", "dead mail"),
        ("save view", "dead mail"),
    ]


async def test_names_numbers_and_missing_views(harness: WebHarness) -> None:
    store = await harness.forge.aready()
    actions = SavedViewActions(store, actor="test")
    for name in ("", " ", "a/b", "x" * 61, "a\nb"):
        with pytest.raises(BadOption, match="name"):
            await actions.save(name, "status:dead")
    with pytest.raises(BadOption, match="empty query"):
        await actions.save("all", " ")
    with pytest.raises(NotFound, match="forge views list"):
        await actions.delete("nothing")
    for number in range(MAX_VIEWS):
        await actions.save(f"view {number}", f"kind:k{number}")
    with pytest.raises(Full):
        await actions.save("one more", "kind:a")
    await actions.save("view 1", "kind:other")
    assert (await saved_views.saved_view(store, "view 1")).query == "kind:other"
