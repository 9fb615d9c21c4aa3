"""O2: the origin of a request is checked unless a bearer token alone identifies it.

Browsers attach Basic credentials and cookies to requests of any site.
"""

import base64
from typing import Any

import httpx
import pytest

from forge_jobs import Forge
from forge_jobs.web import Role, mission_control
from tests.web.harness import PASSWORD, token, web_harness

BASIC = "Basic " + base64.b64encode(b"admin:" + PASSWORD.encode()).decode()
ELSEWHERE = (
    {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
    {"sec-fetch-site": "same-site"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
)
HEADERS = list[tuple[str, str]]


async def slots(client: httpx.AsyncClient, headers: HEADERS, site: dict[str, str]) -> int:
    """The status of a cross-site form that would set the slots of a queue to 0."""
    given = [*headers, *site.items()]
    response = await client.post("/act/queues/mail/slots", data={"slots": "0"}, headers=given)
    return response.status_code


@pytest.mark.parametrize("site", ELSEWHERE, ids=str)
async def test_o2_basic_credentials_do_not_skip_the_origin_check(site: dict[str, str]) -> None:
    """Without credentials this machine is admin, so a browser on it is enough for an attack."""
    forge = Forge("memory://")
    store = await forge.aready()
    await store.queues.ensure("mail", slots=7)
    transport = httpx.ASGITransport(mission_control(forge), client=("127.0.0.1", 5))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for header in (BASIC, "Basic", "Negotiate x", "Digest x", "Bearer x", "Bearer", ""):
            assert await slots(client, [("authorization", header)], site) == 403, header
        assert (await store.queues.get("mail")).slots == 7  # type: ignore[union-attr]
        own = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
        assert await slots(client, [("authorization", BASIC)], own) == 303
    await forge.aclose()


async def test_o2_a_session_is_subject_to_the_origin_check_whatever_else_is_sent() -> None:
    harness = web_harness()
    async with harness.client(None) as client:
        await harness.forge.aready()
        entered = await client.post("/login", data={"password": PASSWORD})
        assert entered.status_code == 303
        good = token(Role.ADMIN)
        for headers in (
            [("authorization", BASIC)],
            [("authorization", "Bearer")],
            [("authorization", "Bearer ")],
            [("authorization", "Bearer not-a-token")],
            [("authorization", f"Bearer\t{good}")],
            [("authorization", f"Bearer {good}x")],
            [("authorization", BASIC), ("authorization", f"Bearer {good}")],
            [("authorization", f"Bearer {good}"), ("authorization", "Bearer x")],
            [("x-authorization", f"Bearer {good}")],
        ):
            for site in ELSEWHERE:
                assert await slots(client, headers, site) == 403, (headers, site)
    await harness.forge.aclose()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_o2_a_valid_token_skips_the_origin_check(scheme: str) -> None:
    harness = web_harness()
    await (await harness.forge.aready()).queues.ensure("mail", slots=7)
    async with harness.client(None) as client:
        headers = [("authorization", f"{scheme} {token(Role.OPERATOR)}")]
        for site in ELSEWHERE:
            assert await slots(client, headers, site) == 303
    await harness.forge.aclose()


async def test_o2_an_invalid_token_does_not_fall_back_to_the_cookie() -> None:
    harness = web_harness()
    async with harness.client(None) as client:
        await client.post("/login", data={"password": PASSWORD})
        assert (await client.get("/api/jobs")).status_code == 200
        for header in ("Bearer", "Bearer x", "bearer  "):
            response = await client.get("/api/jobs", headers={"authorization": header})
            assert response.status_code == 401, header
    await harness.forge.aclose()


async def test_o2_a_custom_check_by_cookie_is_not_bypassed() -> None:
    def check(request: Any) -> str | None:
        known = request.cookies.get("own") == "1"
        return "admin" if known or request.headers.get("authorization") == "Bearer own" else None

    harness = web_harness(auth=check)
    await (await harness.forge.aready()).queues.ensure("mail", slots=7)
    for site in ELSEWHERE:
        # one client each, because the notice of an action sets a cookie
        async with harness.client(None) as client:
            cookie = ("cookie", "own=1")
            assert await slots(client, [cookie], site) == 403
            assert await slots(client, [cookie, ("authorization", "Bearer x")], site) == 403
            assert await slots(client, [("authorization", "Bearer own")], site) == 303
    await harness.forge.aclose()
