"""The control API: acting as a user and reading chats, over HTTP."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from telegram_gateway.fake import FakeTelegram, LeapClock, fake_telegram
from telegram_gateway.fake.control import control_routes
from telegram_gateway.fake.faults import Trouble
from tests.gateway.fake.conftest import TOKEN, Caller


@pytest.fixture
async def fake() -> AsyncIterator[FakeTelegram]:
    async with fake_telegram(clock=LeapClock()) as made:
        yield made


class Control:
    def __init__(self, fake: FakeTelegram, client: httpx2.AsyncClient) -> None:
        self._base = f"{fake.base}/control"
        self._client = client

    async def get(self, path: str, **query: Any) -> Any:
        answer = await self._client.get(f"{self._base}{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, status: int = 200, **body: Any) -> Any:
        answer = await self._client.post(f"{self._base}{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture
def control(fake: FakeTelegram, client: httpx2.AsyncClient) -> Control:
    return Control(fake, client)


async def test_a_user_and_a_bot_exchange_messages(
    fake: FakeTelegram, control: Control, call: Caller
) -> None:
    assert (await control.post("/bots", token=TOKEN))["id"] == 4711
    first = (await control.post("/bots/4711/messages", text="hi", chat=7))["update_id"]
    (update,) = await call("getUpdates")
    assert (update["update_id"], update["message"]["text"]) == (first, "hi")
    looking = asyncio.create_task(control.get("/bots/4711/chats/7", after=1, wait=20))
    rows = [[{"text": "Yes", "callback_data": "y"}]]
    sent = await call("sendMessage", chat_id=7, text="?", reply_markup={"inline_keyboard": rows})
    (entry,) = await looking
    assert (entry["by"], entry["message"]["text"]) == ("bot", "?")
    assert entry["call"]["method"] == "sendMessage"
    await control.post("/bots/4711/presses", message_id=sent["message_id"], data="y")
    await control.post("/bots/4711/edits", message_id=1, text="hi there")
    await control.post("/bots/4711/blocks")
    body = {"id": "1", "from": {"id": 7, "is_bot": False, "first_name": "Ann"}, "query": "q"}
    await control.post("/bots/4711/updates", kind="inline_query", body={**body, "offset": ""})
    kinds = [list(update)[1] for update in await call("getUpdates", offset=first + 1)]
    assert kinds == ["callback_query", "edited_message", "my_chat_member", "inline_query"]
    (shown,) = await control.get("/bots")
    assert (shown["id"], shown["waiting"], shown["chats"]) == (4711, 4, [7])
    methods = [one["method"] for one in await control.get("/calls")]
    assert methods == ["getUpdates", "sendMessage", "getUpdates"]
    assert TOKEN not in str(shown)


async def test_injected_errors_and_clock(
    fake: FakeTelegram, control: Control, call: Caller
) -> None:
    await control.post("/bots", token=TOKEN)
    await control.post("/bots/4711/messages", text="hi")
    await control.post("/faults", trouble="flood", method="sendMessage", seconds=9, times=1)
    refused = await call.refused("sendMessage", chat_id=7, text="x")
    assert refused == (429, {"retry_after": 9})
    before = fake.clock.now()
    await control.post("/clock", seconds=86_401)
    assert fake.clock.now() - before > 86_400 * 1_000_000
    assert await call("getUpdates") == []


async def test_invalid_requests_get_an_error_text(
    fake: FakeTelegram, control: Control, client: httpx2.AsyncClient
) -> None:
    await control.post("/bots", token=TOKEN)
    assert "bot 99" in (await control.post("/bots/99/messages", 404, text="hi"))["error"]
    assert "chat" in (await control.post("/bots/4711/messages", 400, chat="x"))["error"]
    assert "more" in (await control.post("/bots/4711/messages", 400, more=[1]))["error"]
    assert "chat" in (await control.post("/bots/4711/messages", 400, more={"chat": 1}))["error"]
    assert "seconds" in (await control.post("/clock", 400, seconds=-1))["error"]
    assert "seconds" in (await control.post("/clock", 400, seconds="1h"))["error"]
    assert "trouble" in (await control.post("/faults", 400, trouble="earthquake"))["error"]
    assert "token" in (await control.post("/bots", 400, token="nonsense"))["error"]
    assert "body" in (await control.post("/bots/4711/updates", 400, kind="message"))["error"]
    wrong = await control.post("/bots/4711/updates", 400, kind="gossip", body={})
    assert "gossip" in wrong["error"]
    asked = await client.get(f"{fake.base}/control/bots/4711/chats/5")
    assert (asked.status_code, "chat 5" in asked.text) == (404, True)
    form = await client.post(f"{fake.base}/control/faults", data={"trouble": "flood"})
    assert form.status_code == 415


def test_the_docs_list_every_method_and_route(project_root: Path) -> None:
    page = (project_root / "docs" / "gateway-demo.md").read_text(encoding="utf-8")
    fake = FakeTelegram()
    words = set(re.findall(r"\w+", page.lower()))
    assert set(fake.methods) <= words
    for route in control_routes(fake):
        assert f"/{route.path.split('/')[-1]}".replace("{chat}", "CHAT") in page
    for trouble in Trouble:
        assert f"`{trouble}`" in page
