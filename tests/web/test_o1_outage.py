"""O1: while the store cannot be reached no session is valid, and every response is a 503."""

import asyncio

import httpx
import pytest

from forge_jobs import Forge
from forge_jobs.web import Credentials, Role, mission_control
from forge_jobs.web.access import hashes
from tests.postgres.server import private_server
from tests.web.harness import serve_on_socket
from tests.web.test_logins import live_lines

PASSWORD = "the admin's own password"


async def test_o1_without_the_store_no_session_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "_COST", (1 << 8, 8, 1))
    with private_server() as server:
        forge = Forge(server.url(schema="outage"))
        app = mission_control(forge, auth=Credentials({Role.ADMIN: PASSWORD}))
        with serve_on_socket(app) as address:
            async with httpx.AsyncClient(base_url=address, timeout=60) as client:
                await client.post("/login", data={"password": PASSWORD})
                assert (await client.get("/queues")).status_code == 200
                async with live_lines(client, "/queues") as lines:
                    server.stop(immediate=True)
                    line = ""
                    async with asyncio.timeout(60):
                        while line != "event: trouble":
                            line = await anext(lines)
                            assert "(admin)" not in line
                    for path in ("/queues", "/live?view=/queues"):
                        page = await client.get(path)
                        assert page.status_code == 503
                        assert "(admin)" not in page.text
                    api = await client.get("/api/jobs")
                    assert (api.status_code, api.json()["kind"]) == (503, "storage")
                    login = await client.post("/login", data={"password": PASSWORD})
                    assert (login.status_code, "set-cookie" in login.headers) == (503, False)
                    logout = await client.post("/logout")
                    assert (logout.status_code, "set-cookie" in logout.headers) == (503, False)
                    server.start()
                    async with asyncio.timeout(60):
                        while await anext(lines) != "event: view":
                            pass
                assert (await client.get("/queues")).status_code == 200
        await forge.aclose()
