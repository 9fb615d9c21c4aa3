"""The end of a login ends its live streams."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from forge_jobs import Forge
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.kit.clock import SystemClock
from forge_jobs.web import Identity, Role, mission_control
from forge_jobs.web.access.sessions import COOKIE, SESSION_LIFETIME_S
from tests.web.harness import PASSWORD, WebHarness, credentials, serve_on_socket, web_harness

DEADLINE_S = 60.0


class ShiftedClock(SystemClock):
    """A system clock that can be shifted."""

    ahead: Instant = 0

    def now(self) -> Instant:
        return super().now() + self.ahead


@asynccontextmanager
async def open_client(address: str, cookie: str = "") -> AsyncGenerator[httpx.AsyncClient]:
    headers = {"cookie": f"{COOKIE}={cookie}"} if cookie else {}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=DEADLINE_S) as client:
        yield client


@asynccontextmanager
async def live_lines(client: httpx.AsyncClient, page: str) -> AsyncGenerator[AsyncIterator[str]]:
    """The lines of a live stream after its first view."""
    async with client.stream("GET", "/live", params={"view": page}) as response:
        assert response.status_code == 200
        lines = response.aiter_lines()
        async with asyncio.timeout(DEADLINE_S):
            async for line in lines:
                if line == "event: view":
                    break
        yield lines


async def remaining_lines(lines: AsyncIterator[str]) -> list[str]:
    """The remaining lines until the server ends the stream."""
    async with asyncio.timeout(DEADLINE_S):
        return [line async for line in lines]


async def test_a_stream_ends_with_its_login() -> None:
    """With and without a change at the moment the session expires."""
    clock = ShiftedClock()
    forge = Forge("memory://", clock=clock)
    store = await forge.aready()
    app = mission_control(forge, auth=credentials())
    cookie = await app.access.log_in(PASSWORD)
    assert cookie is not None
    with serve_on_socket(app) as address:
        async with (
            open_client(address, cookie) as client,
            live_lines(client, "/queues") as busy,
            live_lines(client, "/jobs?tag=none") as still,
        ):
            clock.ahead = (SESSION_LIFETIME_S + 1) * SECOND
            await store.queues.ensure("secret", slots=1)
            said, calm = await asyncio.gather(remaining_lines(busy), remaining_lines(still))
            assert "event: over" in said
            assert not any("q-secret" in line for line in said)
            assert "event: over" in calm
            assert (await client.get("/queues")).status_code == 303
    await forge.aclose()


@pytest.mark.parametrize("now", [None, Identity("ada", Role.VIEWER)])
async def test_a_stream_ends_when_its_identity_is_refused_or_loses_rights(
    now: Identity | None,
) -> None:
    forge = Forge("memory://")
    who: list[Identity | None] = [Identity("ada", Role.ADMIN)]
    with serve_on_socket(mission_control(forge, auth=lambda request: who[0])) as address:
        async with open_client(address) as client, live_lines(client, "/audit") as lines:
            who[0] = now
            assert "event: over" in await remaining_lines(lines)
            assert (await client.get("/live", params={"view": "/audit"})).status_code == 403
    await forge.aclose()


async def test_logging_out_ends_the_login_and_its_streams() -> None:
    """A copy of the cookie is invalid afterwards; another session of the same role stays valid."""
    with web_harness() as harness, serve_on_socket(harness.app) as address:
        async with open_client(address) as mine, open_client(address) as other:
            await log_in(mine)
            await log_in(other)
            async with (
                open_client(address, mine.cookies[COOKIE]) as copy,
                live_lines(copy, "/queues") as lines,
            ):
                assert (await other.post("/logout")).status_code == 303
                assert (await copy.get("/queues")).status_code == 200
                assert (await mine.post("/logout")).status_code == 303
                assert "event: over" in await remaining_lines(lines)
                assert (await copy.get("/queues")).status_code == 303


async def log_in(client: httpx.AsyncClient) -> None:
    response = await client.post("/login", data={"password": PASSWORD})
    assert response.status_code == 303


async def test_a_page_that_is_not_live_is_not_streamed() -> None:
    harness: WebHarness = web_harness()
    async with harness.client(Role.ADMIN) as client:
        assert (await client.get("/bulk/retry?status=dead")).status_code == 200
        async with asyncio.timeout(DEADLINE_S):
            response = await client.get("/live", params={"view": "/bulk/retry?status=dead"})
        assert response.status_code == 404
        assert "does not change by itself" in response.text
    await harness.forge.aclose()
