"""A login that ends takes its open pages with it: nothing more is streamed to whoever had it."""

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
from tests.web.panel import PASSWORD, Panel, credentials, on_a_socket, panel

DEADLINE_S = 60.0


class Movable(SystemClock):
    """The clock on the wall can be set forward."""

    ahead: Instant = 0

    def now(self) -> Instant:
        return super().now() + self.ahead


@asynccontextmanager
async def opened(address: str, cookie: str = "") -> AsyncGenerator[httpx.AsyncClient]:
    headers = {"cookie": f"{COOKIE}={cookie}"} if cookie else {}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=DEADLINE_S) as client:
        yield client


@asynccontextmanager
async def watching(client: httpx.AsyncClient, page: str) -> AsyncGenerator[AsyncIterator[str]]:
    """The lines of a live page, after its first state has come."""
    async with client.stream("GET", "/live", params={"view": page}) as answer:
        assert answer.status_code == 200
        lines = answer.aiter_lines()
        async with asyncio.timeout(DEADLINE_S):
            async for line in lines:
                if line == "event: view":
                    break
        yield lines


async def last_words(lines: AsyncIterator[str]) -> list[str]:
    """What a stream says until the server ends it."""
    async with asyncio.timeout(DEADLINE_S):
        return [line async for line in lines]


async def test_a_stream_ends_with_its_login() -> None:
    """One page has news to show when the time is over, one has not."""
    clock = Movable()
    forge = Forge("memory://", clock=clock)
    store = await forge.aready()
    app = mission_control(forge, auth=credentials())
    cookie = await app.access.log_in(PASSWORD)
    assert cookie is not None
    with on_a_socket(app) as address:
        async with (
            opened(address, cookie) as client,
            watching(client, "/queues") as busy,
            watching(client, "/jobs?tag=none") as still,
        ):
            clock.ahead = (SESSION_LIFETIME_S + 1) * SECOND
            await store.queues.ensure("secret", slots=1)
            said, calm = await asyncio.gather(last_words(busy), last_words(still))
            assert "event: over" in said
            assert not any("q-secret" in line for line in said)
            assert "event: over" in calm
            assert (await client.get("/queues")).status_code == 303
    await forge.aclose()


@pytest.mark.parametrize("now", [None, Identity("ada", Role.VIEWER)])
async def test_a_stream_ends_when_its_person_is_refused_or_may_less(now: Identity | None) -> None:
    forge = Forge("memory://")
    who: list[Identity | None] = [Identity("ada", Role.ADMIN)]
    with on_a_socket(mission_control(forge, auth=lambda request: who[0])) as address:
        async with opened(address) as client, watching(client, "/audit") as lines:
            who[0] = now
            assert "event: over" in await last_words(lines)
            assert (await client.get("/live", params={"view": "/audit"})).status_code == 403
    await forge.aclose()


async def test_logging_out_ends_the_login_and_its_streams() -> None:
    """A copy of the cookie, in another window or in other hands, is worth nothing afterwards;
    another login of the same role goes on."""
    with panel() as made, on_a_socket(made.app) as address:
        async with opened(address) as mine, opened(address) as other:
            await log_in(mine)
            await log_in(other)
            async with (
                opened(address, mine.cookies[COOKIE]) as copy,
                watching(copy, "/queues") as lines,
            ):
                assert (await other.post("/logout")).status_code == 303
                assert (await copy.get("/queues")).status_code == 200
                assert (await mine.post("/logout")).status_code == 303
                assert "event: over" in await last_words(lines)
                assert (await copy.get("/queues")).status_code == 303


async def log_in(client: httpx.AsyncClient) -> None:
    answer = await client.post("/login", data={"password": PASSWORD})
    assert answer.status_code == 303


async def test_a_page_that_does_not_live_is_not_streamed() -> None:
    made: Panel = panel()
    async with made.client(Role.ADMIN) as client:
        assert (await client.get("/bulk/retry?status=dead")).status_code == 200
        async with asyncio.timeout(DEADLINE_S):
            answer = await client.get("/live", params={"view": "/bulk/retry?status=dead"})
        assert answer.status_code == 404
        assert "does not change by itself" in answer.text
    await made.forge.aclose()
