"""A gateway with bots, a fake Bot API, and updates to post."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from telegram_gateway.config import load
from telegram_gateway.gateway import Gateway
from tests.gateway.fake_api import FakeApi, fake_api
from tests.postgres.schemas import Schemas
from tests.postgres.server import PrivateServer

TOKEN = "{number}:AAabcdefghijklmnopqrstuvwxyz_{number}"
SECRET = "S" * 40
AUTH_SECRET = "open-sesame-0123456789"


@dataclass
class Bots:
    """Builds gateways whose bots use one fake Bot API and one store."""

    api: FakeApi
    folder: Path
    store: str = ""

    @property
    def url(self) -> str:
        return self.store or f"sqlite:///{self.folder}/gateway.db"

    def environment(self, yaml: str, **variables: str) -> dict[str, str]:
        path = self.folder / "bots.yaml"
        path.write_text(yaml, encoding="utf-8")
        found = {
            "BOTS_CONFIG": str(path),
            "TELEGRAM_API_BASE": self.api.base or "http://127.0.0.1:9",
            "DATABASE_URL": self.url,
            "AUTH_SECRET": AUTH_SECRET,
        }
        for place, slug in enumerate(("echo", "back", "inline", "access"), start=1):
            found[f"BOT_{slug.upper()}_TOKEN"] = TOKEN.format(number=100 + place)
            found[f"BOT_{slug.upper()}_SECRET"] = SECRET
        return {key: value for key, value in {**found, **variables}.items() if value}

    def gateway(
        self, yaml: str, *, made: dict[str, Any] | None = None, **variables: str
    ) -> Gateway:
        settings, bots, _ = load(self.environment(yaml, **variables))
        return Gateway(settings, bots, **(made or {}))


@pytest.fixture
def postgres_url(schemas: Schemas, postgres: PrivateServer) -> Iterator[str]:
    """An empty schema, and none of the gateway's own tables."""
    name = schemas.take()
    yield schemas.url(name)
    schemas.give_back(name)
    postgres.sql(f"DROP SCHEMA IF EXISTS {name}_gateway CASCADE")


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of the store; a run without Postgres tests starts no server."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gateway.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
async def bots(tmp_path: Path) -> AsyncIterator[Bots]:
    async with fake_api() as api:
        yield Bots(api, tmp_path)


def update(number: int, text: str = "hi", *, chat: int = 7, user: int = 7, **more: Any) -> bytes:
    """A message as Telegram sends it, with fields that the gateway does not know."""
    kind = "private" if chat > 0 else "group"
    message = {
        "message_id": number,
        "chat": {"id": chat, "type": kind, "first_name": "Ann"},
        "from": {"id": user, "is_bot": False, "language_code": "en"},
        "text": text,
        "from_the_future": {"deep": [1, 2]},
        **more,
    }
    return json.dumps({"update_id": number, "message": message}).encode()


Post = Callable[..., Any]


async def post(gateway: Gateway, slug: str, body: bytes, **headers: str) -> httpx2.Response:
    """Post one webhook request to the gateway's application."""
    transport = httpx2.ASGITransport(app=gateway.app)
    sent = {
        "content-type": "application/json",
        "x-telegram-bot-api-secret-token": SECRET,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client:
        return await client.post(f"/bot/{slug}", content=body, headers=sent)
