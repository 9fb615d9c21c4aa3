"""O1: while the store cannot be asked nobody is known, and everything says so without breaking."""

import asyncio

import httpx
import pytest

from forge_jobs import Forge
from forge_jobs.web import Credentials, Role, mission_control
from forge_jobs.web.access import hashes
from tests.postgres.server import private_server
from tests.web.panel import on_a_socket
from tests.web.test_logins import watching

PASSWORD = "the admin's own password"


async def test_o1_without_the_store_nobody_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "_COST", (1 << 8, 8, 1))
    with private_server() as server:
        forge = Forge(server.url(schema="outage"))
        app = mission_control(forge, auth=Credentials({Role.ADMIN: PASSWORD}))
        with on_a_socket(app) as address:
            async with httpx.AsyncClient(base_url=address, timeout=60) as client:
                await client.post("/login", data={"password": PASSWORD})
                assert (await client.get("/queues")).status_code == 200
                async with watching(client, "/queues") as lines:
                    server.stop(immediate=True)
                    told = ""
                    async with asyncio.timeout(60):
                        while told != "event: trouble":
                            told = await anext(lines)
                            assert "(admin)" not in told
                    for path in ("/queues", "/live?view=/queues"):
                        page = await client.get(path)
                        assert page.status_code == 503
                        assert "(admin)" not in page.text
                    api = await client.get("/api/jobs")
                    assert (api.status_code, api.json()["kind"]) == (503, "storage")
                    tried = await client.post("/login", data={"password": PASSWORD})
                    assert (tried.status_code, "set-cookie" in tried.headers) == (503, False)
                    left = await client.post("/logout")
                    assert (left.status_code, "set-cookie" in left.headers) == (503, False)
                    server.start()
                    async with asyncio.timeout(60):
                        while await anext(lines) != "event: view":
                            pass
                assert (await client.get("/queues")).status_code == 200
        await forge.aclose()
