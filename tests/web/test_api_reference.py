"""The API reference is rendered from the document: every route, every field, and runnable curls."""

import re

import pytest

from forge_jobs.web import Role
from forge_jobs.web.api.openapi import openapi_document
from tests.web.harness import web_harness


async def test_every_route_and_every_field_is_on_a_page() -> None:
    document = openapi_document("", read_only=False)
    operations = [
        (operation["tags"][0], f"{method.upper()} {path}")
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    seen: set[str] = set()
    with web_harness() as harness:
        async with harness.client(Role.VIEWER) as viewer:
            index = (await viewer.get("/api/docs")).text
            pages = {
                group: (await viewer.get(f"/api/docs/{group}")).text
                for group in sorted({group for group, _ in operations})
            }
            assert (await viewer.get("/api/docs/nothing")).status_code == 404
    for group, name in operations:
        assert name in index
        assert name in pages[group]
        seen |= set(re.findall(r'id="schema-(\w+)"', pages[group]))
    assert seen == set(document["components"]["schemas"])
    for text in (index, *pages.values()):
        targets = set(re.findall(r'href="#([\w-]+)"', text))
        assert targets - set(re.findall(r'id="([\w-]+)"', text)) - {"main"} == set()


async def test_the_curl_of_a_route_is_a_request_that_works() -> None:
    with web_harness() as harness:
        async with harness.client(Role.OPERATOR) as operator:
            page = (await operator.get("/api/docs/job_actions")).text
            found = re.search(r"-d &#39;(\{.*?\})&#39;[^<]*/api/jobs/enqueue&#34;", page)
            assert found is not None
            body = found[1].replace("&#34;", '"')
            headers = {"content-type": "application/json"}
            answer = await operator.post("/api/jobs/enqueue", content=body, headers=headers)
            assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", ["/api/docs", "/api/docs/alerts"])
async def test_the_reference_is_for_people_who_may_read(path: str) -> None:
    with web_harness() as harness:
        async with harness.client(None) as stranger:
            assert (await stranger.get(path)).status_code in (302, 303, 401)
