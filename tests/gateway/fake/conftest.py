"""A fake Telegram with a stopped clock, a bot, and a client for its methods."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from forge_jobs.kit.entropy import SeededEntropy
from forge_jobs.testing.clock import MovableClock
from telegram_gateway.fake import FakeBot, FakeTelegram, fake_telegram
from tests.gateway.fake.receiver import Receiver, receiver

TOKEN = "4711:AAabcdefghijklmnopqrstuvwxyz_0123456"


class Caller:
    """Calls methods as a bot does."""

    def __init__(self, fake: FakeTelegram, client: httpx2.AsyncClient, token: str = TOKEN) -> None:
        self._url = f"{fake.base}/bot{token}"
        self._client = client

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method and return the response."""
        answer = await self._client.post(f"{self._url}/{method}", json=parameters)
        found = answer.json()
        assert answer.status_code == (200 if found["ok"] else found["error_code"])
        return found

    async def __call__(self, method: str, **parameters: Any) -> Any:
        """Call a method that must succeed and return its result."""
        found = await self.ask(method, **parameters)
        assert found["ok"], found
        return found["result"]

    async def refused(self, method: str, **parameters: Any) -> tuple[int, dict[str, Any]]:
        found = await self.ask(method, **parameters)
        assert not found["ok"], found
        return found["error_code"], found.get("parameters", {})


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def fake(clock: MovableClock) -> AsyncIterator[FakeTelegram]:
    async with fake_telegram(clock=clock, entropy=SeededEntropy(1)) as made:
        yield made


@pytest.fixture
def bot(fake: FakeTelegram) -> FakeBot:
    return fake.bot(TOKEN, name="Echo", username="echo_bot")


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False, timeout=30, verify=False) as made:
        yield made


@pytest.fixture
def call(fake: FakeTelegram, bot: FakeBot, client: httpx2.AsyncClient) -> Caller:
    return Caller(fake, client)


@pytest.fixture
async def hook() -> AsyncIterator[Receiver]:
    async with receiver() as made:
        yield made
