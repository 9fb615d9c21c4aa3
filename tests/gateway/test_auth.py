"""Sessions: the whole flow on every store, brute force, and that the code is not stored."""

import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forge_jobs.testing import Time, frozen
from telegram_gateway.gateway import Gateway
from tests.gateway.conftest import AUTH_SECRET, Bots, post, update

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOTS = "bots: {access: {handler: auth}, echo: {handler: echo, async: true}}"


@pytest.fixture(params=["sqlite", "postgres", "none"])
def url(request: pytest.FixtureRequest, bots: Bots) -> str:
    match request.param:
        case "sqlite":
            return bots.url
        case "postgres":
            return request.getfixturevalue("postgres_url")
        case _:
            return ""


class AccessBotUser:
    """One user at the access bot, one update after the other."""

    def __init__(self, bots: Bots, gateway: Gateway, time: Time | None) -> None:
        self._bots = bots
        self._gateway = gateway
        self._time = time
        self._number = 0

    async def say(
        self, text: str, *, bot: str = "access", chat: int = 7, user: int = 7
    ) -> list[str]:
        self._number += 1
        before = len(self._bots.api.texts())
        answer = await post(self._gateway, bot, update(self._number, text, chat=chat, user=user))
        assert answer.status_code == 200
        if self._gateway.forge is not None:
            await self._gateway.forge.drain()
        return self._bots.api.texts()[before:]


@pytest.fixture
async def user(bots: Bots, url: str) -> AsyncIterator[AccessBotUser]:
    text = BOTS if url else "bots: {access: {handler: auth}, echo: {handler: echo}}"
    gateway = bots.gateway(text, DATABASE_URL=url)
    async with gateway.running(workers=False):
        yield AccessBotUser(bots, gateway, None)


async def test_a_session_is_valid_for_all_bots_until_logout(user: AccessBotUser) -> None:
    assert (await user.say("hello", bot="echo"))[0].startswith("Please open a session")
    assert await user.say(f"/auth {AUTH_SECRET}") == ["You are logged in for 24 h."]
    assert await user.say("hello", bot="echo") == ["hello"]
    assert await user.say("/logout") == ["You are logged out."]
    assert await user.say("hello", bot="echo") == []


async def test_valid_and_invalid_codes(bots: Bots, user: AccessBotUser) -> None:
    assert "/auth <code>" in (await user.say("/start"))[0]
    assert await user.say("/auth nonsense") == ["This code is not valid."]
    assert await user.say(f"/auth@AccessBot {AUTH_SECRET}") == ["You are logged in for 24 h."]
    assert bots.api.methods().count("deleteMessage") == 2
    assert "ends in 24 h" in (await user.say("/whoami", chat=70))[0]


async def test_auth_commands_in_groups_get_no_reply(user: AccessBotUser) -> None:
    assert await user.say(f"/auth {AUTH_SECRET}", chat=-5) == []


async def test_wrong_code_limit_and_session_expiry(bots: Bots, store_url: str) -> None:
    gateway = bots.gateway(BOTS, DATABASE_URL=store_url)
    assert gateway.forge is not None
    with frozen(gateway.forge, at=NOW) as time:
        async with gateway.running(workers=False):
            user = AccessBotUser(bots, gateway, time)
            for _ in range(5):
                time.advance(30)
                assert await user.say("/auth wrong") == ["This code is not valid."]
            time.advance(30)
            assert await user.say(f"/auth {AUTH_SECRET}") == []
            time.advance("16m")
            assert await user.say(f"/auth {AUTH_SECRET}") == ["You are logged in for 24 h."]
            time.advance(30)
            assert await user.say("yes", bot="echo") == ["yes"]
            time.advance("25h")
            assert await user.say("no", bot="echo") != ["no"]


async def test_the_code_is_not_stored_in_the_database(bots: Bots, tmp_path: Path) -> None:
    gateway = bots.gateway(BOTS)
    async with gateway.running(workers=False):
        user = AccessBotUser(bots, gateway, None)
        for bot in ("access", "echo"):
            for text in (f"/auth {AUTH_SECRET}", f" /AUTH {AUTH_SECRET}", f"/auth {AUTH_SECRET}x"):
                await user.say(text, bot=bot)
        await post(gateway, "echo", b'{"text": "/auth ' + AUTH_SECRET.encode() + b'"}')
        for path in filter(Path.is_file, tmp_path.rglob("gateway.db*")):
            assert AUTH_SECRET.encode() not in path.read_bytes(), path.name
        with sqlite3.connect(tmp_path / "gateway.db") as database:
            [(kept,)] = database.execute("SELECT count(*) FROM gateway_quarantined")
        database.close()
    assert kept == 1


@pytest.mark.parametrize(
    ("text", "is_code"),
    [
        ("/auth code", True), ("/auth", True), ("/auth@SomeBot code", True), (" /AUTH\tcode", True),
        ("/auth:code", True), ("/auth\ncode", True), ("/authors", False), ("/authorize me", False),
        ("/auth_token", False), ("/authors@SomeBot", False), ("about /auth code", False),
    ],
)  # fmt: skip
async def test_g7_only_the_whole_word_auth_is_kept_from_handlers(
    bots: Bots, text: str, is_code: bool
) -> None:
    gateway = bots.gateway("bots: {echo: {handler: echo, requireAuth: false}}")
    async with gateway.running(workers=False):
        assert (await post(gateway, "echo", update(1, text))).is_success
    assert bots.api.texts() == ([] if is_code else [text])


async def test_g7_the_auth_bot_takes_the_command_with_its_name(bots: Bots) -> None:
    gateway = bots.gateway(BOTS)
    async with gateway.running(workers=False):
        assert (
            await post(gateway, "access", update(1, f"/auth@AccessBot {AUTH_SECRET}"))
        ).is_success
        assert (await post(gateway, "access", update(2, "/authors"))).is_success
        assert gateway.forge is not None
        await gateway.forge.drain()
    logged_in, help_text = bots.api.texts()
    assert logged_in.startswith("You are logged in")
    assert help_text.startswith("/auth <code>")
