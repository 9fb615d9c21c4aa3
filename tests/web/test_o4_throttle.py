"""O4: wrong passwords slow down their own address only, and every login is logged and audited."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from forge_jobs import Forge
from forge_jobs.ops.audit import AuditEntryView, read_entries
from forge_jobs.ops.login_attempts import pause_s, source_of
from forge_jobs.web import Credentials, Role, mission_control
from forge_jobs.web.access import hashes
from tests.web.harness import serve_on_socket

ADMIN, VIEWER = "the admin's own password", "known to every viewer"
BOTH = {Role.ADMIN: ADMIN, Role.VIEWER: VIEWER}
WRONG = "wr0ng-guess-planted"


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "_COST", (1 << 8, 8, 1))


class Site:
    """A Mission Control in process, with clients at any address."""

    def __init__(self, url: str) -> None:
        self.forge = Forge(url)
        self.app = mission_control(self.forge, auth=Credentials(BOTH))

    def client(self, address: str = "10.1.1.1", cookie: str = "") -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app, client=(address, 4711))
        headers = {"cookie": cookie} if cookie else {}
        return httpx.AsyncClient(
            transport=transport, base_url="http://jobs.example", headers=headers
        )

    async def log_in(
        self, password: str, address: str = "10.1.1.1", cookie: str = "", role: str = ""
    ) -> Any:
        async with self.client(address, cookie) as client:
            return await client.post("/login", data={"password": password, "role": role})

    async def fail(
        self, times: int, address: str = "10.1.1.1", cookie: str = "", role: str = ""
    ) -> list[int]:
        return [(await self.log_in(WRONG, address, cookie, role)).status_code for _ in range(times)]

    async def entries(self, action: str) -> tuple[AuditEntryView, ...]:
        return (await read_entries(await self.forge.aready(), action=action)).entries


@asynccontextmanager
async def site_on(url: str) -> AsyncGenerator[Site]:
    site = Site(url)
    try:
        yield site
    finally:
        await site.app.aclose()
        await site.forge.aclose()


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    from forge_jobs.web import login

    monkeypatch.setattr(login, "FAILURE_DELAY_S", 0.0)


async def test_o4_wrong_passwords_pause_their_own_address_only() -> None:
    async with site_on("memory://") as site:
        assert await site.fail(7) == [401] * 5 + [429] * 2
        refused = await site.log_in(ADMIN)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "try again in" in refused.text
        assert (await site.log_in(ADMIN, "10.1.1.2")).status_code == 303
        await asyncio.sleep(1.2)
        assert (await site.log_in(ADMIN)).status_code == 303


async def test_o4_25_sockets_of_wrong_passwords_do_not_lock_the_right_one_out() -> None:
    """The attack of the review, on a real server: 25 connections that guess without a pause."""
    forge = Forge("memory://")
    app = mission_control(forge, auth=Credentials(BOTH))
    statuses: list[int] = []
    with serve_on_socket(app) as url:

        def client(address: str) -> httpx.AsyncClient:
            return httpx.AsyncClient(
                base_url=url, transport=httpx.AsyncHTTPTransport(local_address=address)
            )

        async with client("127.0.0.1") as known:
            assert (await known.post("/login", data={"password": ADMIN})).status_code == 303

        async def guess() -> None:
            async with client("127.0.0.2") as attacker:
                while True:
                    response = await attacker.post("/login", data={"password": WRONG})
                    statuses.append(response.status_code)

        guesses = [asyncio.create_task(guess()) for _ in range(25)]
        try:
            while statuses.count(401) < 5 or statuses.count(429) < 50:
                await asyncio.sleep(0.05)
            async with client("127.0.0.3") as user:
                async with asyncio.timeout(10):
                    right = await user.post("/login", data={"password": ADMIN})
                assert right.status_code == 303
                assert (await user.get("/api/jobs")).status_code == 200
        finally:
            for task in guesses:
                task.cancel()
            await asyncio.gather(*guesses, return_exceptions=True)
    forge.close()
    assert 303 not in statuses


async def test_o4_a_browser_that_logged_in_before_is_not_locked_out_by_its_neighbours() -> None:
    async with site_on("memory://") as site:
        first = await site.log_in(ADMIN)
        device = f"forge_device={first.cookies['forge_device']}"
        await site.fail(8)
        assert (await site.log_in(ADMIN)).status_code == 429
        assert (await site.log_in(ADMIN, cookie=device)).status_code == 303
        # it may try its own role only, and has failures of its own
        assert (await site.log_in(VIEWER, cookie=device)).status_code == 401
        assert await site.fail(6, cookie=device) == [401] * 4 + [429] * 2
        for forged in ("admin.00.11", "admin..", "x", device[:-1] + "0" * 2, "root.1.2"):
            value = f"forge_device={forged.removeprefix('forge_device=')}"
            assert (await site.log_in(ADMIN, cookie=value)).status_code == 429


async def test_o4_a_first_login_behind_an_attacked_address_names_its_role() -> None:
    """An operator behind the same NAT or proxy as the attacker, with a browser of no earlier login:
    an account that was not attacked from this address does not wait."""
    async with site_on("memory://") as site:
        await site.fail(8)
        refused = await site.log_in(VIEWER)
        assert refused.status_code == 429
        assert "choose your role" in refused.text
        assert (await site.log_in(VIEWER, role="viewer")).status_code == 303
        await site.fail(8, role="admin")
        assert (await site.log_in(VIEWER, role="viewer")).status_code == 303
        refused = await site.log_in(ADMIN, role="admin")
        assert refused.status_code == 429
        assert '<option value="admin" selected>' in refused.text
        # a named role takes its own password only, and a role without one counts as not named
        assert (await site.log_in(ADMIN, "10.1.1.9", role="viewer")).status_code == 401
        assert (await site.log_in(ADMIN, "10.1.1.9", role="operator")).status_code == 303


async def test_o4_guessing_from_many_addresses_pauses_all_but_known_ones() -> None:
    async with site_on("memory://") as site:
        assert (await site.log_in(ADMIN, "10.3.0.1", role="admin")).status_code == 303
        statuses: list[int] = []
        for number in range(50):
            statuses += await site.fail(3, f"10.4.0.{number}", role="admin")
        assert statuses.index(429) == 100
        assert (await site.log_in(ADMIN, "10.5.0.1", role="admin")).status_code == 429
        # neither an address that logged in before nor another role waits
        assert (await site.log_in(ADMIN, "10.3.0.1", role="admin")).status_code == 303
        assert (await site.log_in(VIEWER, "10.5.0.1", role="viewer")).status_code == 303


async def test_o4_a_viewer_gains_no_guesses_by_logging_in_between() -> None:
    async with site_on("memory://") as site:
        assert await site.fail(4) == [401] * 4
        viewer = await site.log_in(VIEWER)
        device = f"forge_device={viewer.cookies['forge_device']}"
        assert (await site.log_in(WRONG)).status_code == 401
        assert (await site.log_in(ADMIN)).status_code == 429
        # the device counts for the viewer's password alone: the admin's is not even tried
        assert (await site.log_in(ADMIN, cookie=device)).status_code == 401


async def test_o4_processes_share_the_failures(shared_url: str) -> None:
    async with site_on(shared_url) as one, site_on(shared_url) as two:
        assert await one.fail(3) == [401] * 3
        assert await two.fail(3) == [401, 401, 429]
        assert (await one.log_in(ADMIN)).status_code == 429
        assert (await one.log_in(ADMIN, "10.9.9.9")).status_code == 303
    async with site_on(shared_url) as restarted:
        assert (await restarted.fail(1))[0] in (401, 429)
        assert (await restarted.log_in(ADMIN)).status_code == 429


async def test_o4_logins_failed_or_not_and_logouts_are_logged_and_audited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with site_on("memory://") as site:
        await site.fail(6, "10.7.7.7")
        async with site.client("10.8.8.8") as client:
            await client.post("/login", data={"password": VIEWER})
            assert (await client.post("/logout")).status_code == 303
            assert (await client.post("/logout")).status_code == 303
        await asyncio.sleep(1.2)
        await site.fail(1, "10.7.7.7")
        failed = await site.entries("failed log in")
        assert [entry.detail["failures"] for entry in failed] == [6, 5, 4, 3, 2, 1]
        assert (failed[0].detail["refused"], failed[0].detail["wait_s"]) == (1, 2.0)
        assert {(entry.actor, entry.address) for entry in failed} == {("web:unknown", "10.7.7.7")}
        for action in ("log in", "log out"):
            entry = next(one for one in await site.entries(action) if one.action == action)
            assert (entry.actor, entry.role, entry.address) == ("web:viewer", "viewer", "10.8.8.8")
        assert len(list(await site.entries("log out"))) == 1
        everything = str(await read_entries(await site.forge.aready()))
    logged = " ".join(str(vars(record)) for record in caplog.records)
    assert "failed log in" in logged
    assert "10.7.7.7" in logged
    assert [r.levelname for r in caplog.records if "failed log in" in str(vars(r))] == [
        "WARNING"
    ] * 6
    for secret in (WRONG, ADMIN, VIEWER):
        assert secret not in everything + logged


def test_o4_the_pause_grows_and_is_bounded() -> None:
    pauses = [pause_s(n) for n in range(1, 14)]
    assert pauses == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert pause_s(10**9) == 60


def test_o4_an_ipv6_network_is_one_address() -> None:
    assert source_of("2001:db8::1") == source_of("2001:db8:0:0:ffff::2")
    assert source_of("2001:db8:0:1::1") != source_of("2001:db8::1")
    assert source_of("::ffff:10.0.0.1") == source_of("10.0.0.1") == "10.0.0.1"
    assert source_of(None) == source_of(None)


@pytest.mark.parametrize(
    ("peer", "seen"), [("127.0.0.1", "203.0.113.9"), ("127.0.0.2", "127.0.0.2")]
)
async def test_o4_only_a_trusted_proxy_names_the_address(peer: str, seen: str) -> None:
    """``forge web`` trusts X-Forwarded-For of this machine's proxy, and of no other peer."""
    from forge_jobs.web import standalone

    forge = Forge("memory://")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("FORGE_WEB_PASSWORD", ADMIN)
        environment.delenv("FORWARDED_ALLOW_IPS", raising=False)
        listener = standalone.listen("0.0.0.0", 0)
        port = listener.getsockname()[1]
        async with standalone.serve(forge, listener):
            transport = httpx.AsyncHTTPTransport(local_address=peer)
            async with httpx.AsyncClient(transport=transport) as client:
                answer = await client.post(
                    f"http://127.0.0.1:{port}/login",
                    data={"password": WRONG},
                    headers={"x-forwarded-for": "198.51.100.1, 203.0.113.9"},
                )
                assert answer.status_code == 401
            entries = (await read_entries(await forge.aready())).entries
    await forge.aclose()
    assert [entry.address for entry in entries] == [seen]
