"""O2: which site a request comes from is asked unless a bearer token alone says who it is.

Browsers send Basic credentials and cookies by themselves, to whoever's page asks for it.
"""

import base64
from typing import Any

import httpx
import pytest

from forge_jobs import Forge
from forge_jobs.web import Role, mission_control
from tests.web.panel import PASSWORD, panel, token

BASIC = "Basic " + base64.b64encode(b"admin:" + PASSWORD.encode()).decode()
ELSEWHERE = (
    {"sec-fetch-site": "cross-site", "origin": "https://evil.example"},
    {"sec-fetch-site": "same-site"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
)
HEADERS = list[tuple[str, str]]


async def slots(client: httpx.AsyncClient, headers: HEADERS, site: dict[str, str]) -> int:
    """The status of a form of another site that would stop a queue."""
    given = [*headers, *site.items()]
    answer = await client.post("/act/queues/mail/slots", data={"slots": "0"}, headers=given)
    return answer.status_code


@pytest.mark.parametrize("site", ELSEWHERE, ids=str)
async def test_o2_basic_credentials_do_not_stand_for_the_site(site: dict[str, str]) -> None:
    """Nobody logs in here: this machine is admin, and a browser on it is enough."""
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


async def test_o2_a_session_is_asked_for_its_site_whatever_else_is_sent() -> None:
    made = panel()
    async with made.client(None) as client:
        await made.forge.aready()
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
    await made.forge.aclose()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_o2_a_known_token_is_no_other_sites(scheme: str) -> None:
    made = panel()
    await (await made.forge.aready()).queues.ensure("mail", slots=7)
    async with made.client(None) as client:
        headers = [("authorization", f"{scheme} {token(Role.OPERATOR)}")]
        for site in ELSEWHERE:
            assert await slots(client, headers, site) == 303
    await made.forge.aclose()


async def test_o2_a_bearer_that_is_nobodys_does_not_fall_back_to_the_cookie() -> None:
    made = panel()
    async with made.client(None) as client:
        await client.post("/login", data={"password": PASSWORD})
        assert (await client.get("/api/jobs")).status_code == 200
        for header in ("Bearer", "Bearer x", "bearer  "):
            answer = await client.get("/api/jobs", headers={"authorization": header})
            assert answer.status_code == 401, header
    await made.forge.aclose()


async def test_o2_a_check_of_ones_own_by_cookie_is_not_bypassed() -> None:
    def check(request: Any) -> str | None:
        known = request.cookies.get("own") == "1"
        return "admin" if known or request.headers.get("authorization") == "Bearer own" else None

    made = panel(auth=check)
    await (await made.forge.aready()).queues.ensure("mail", slots=7)
    for site in ELSEWHERE:
        # a client for each: the notice of an act is a cookie, too
        async with made.client(None) as client:
            cookie = ("cookie", "own=1")
            assert await slots(client, [cookie], site) == 403
            assert await slots(client, [cookie, ("authorization", "Bearer x")], site) == 403
            assert await slots(client, [("authorization", "Bearer own")], site) == 303
    await made.forge.aclose()
