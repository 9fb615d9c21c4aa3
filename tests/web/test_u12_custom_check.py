"""U12: an ``auth=`` callable may answer with a response, and a refusal says what refused."""

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from forge_jobs.web import Identity, Role
from tests.web.harness import REMOTE_CLIENT, web_harness


async def check(request: Request) -> Identity | Response | None:
    match request.headers.get("x-user"):
        case None:
            return RedirectResponse("https://sso.example/login?next=/forge", 303)
        case "banned":
            return PlainTextResponse("your account is locked\n", 403)
        case "stranger":
            return None
        case name:
            return Identity(name, Role.ADMIN)


@pytest.mark.parametrize("root", ["", "/forge"])
async def test_u12_a_check_may_redirect_to_a_login(root: str) -> None:
    harness = web_harness(auth=check)
    async with harness.client(None, root=root) as client:
        for path in ("/", "/queues", "/live?view=/", "/api/jobs", "/audit"):
            response = await client.get(root + path)
            assert response.status_code == 303, path
            assert response.headers["location"] == "https://sso.example/login?next=/forge"
            assert "content-security-policy" in response.headers
        inside = await client.get(f"{root}/queues", headers={"hx-request": "true"})
        assert inside.status_code == 401
        assert inside.headers["hx-redirect"] == "https://sso.example/login?next=/forge"
        posted = await client.post(f"{root}/api/queue/cleanup")
        assert posted.status_code == 303
        locked = await client.get(f"{root}/queues", headers={"x-user": "banned"})
        assert (locked.status_code, locked.text) == (403, "your account is locked\n")
        assert (await client.get(f"{root}/queues", headers={"x-user": "ada"})).status_code == 200
    await harness.forge.aclose()


async def test_u12_a_refusal_names_the_check_and_not_missing_credentials() -> None:
    harness = web_harness(auth=check)
    async with harness.client(None) as client:
        stranger = {"x-user": "stranger"}
        page = await client.get("/queues", headers=stranger)
        api = await client.get("/api/jobs", headers=stranger)
    await harness.forge.aclose()
    assert (page.status_code, api.status_code) == (403, 401)
    for text in (page.text, api.json()["msg"]):
        assert "auth=) refused this request" in text
        assert "FORGE_WEB_PASSWORD" not in text


async def test_u12_without_any_credentials_the_remedy_is_to_set_some() -> None:
    harness = web_harness(auth=None)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(harness.app, client=REMOTE_CLIENT),
        base_url="http://jobs.example",
    ) as client:
        page, api = await client.get("/queues"), await client.get("/api/jobs")
    await harness.forge.aclose()
    assert (page.status_code, api.status_code) == (403, 401)
    assert "set FORGE_WEB_PASSWORD" in page.text
    assert "set FORGE_WEB_PASSWORD" in api.json()["msg"]
