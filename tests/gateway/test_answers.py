"""What a service may answer: Telegram's webhook form in JSON or as a form (G5); business
connections and topics of replies (G10)."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from aiogram import Bot as AiogramBot
from aiogram import Dispatcher, types
from aiogram.methods import EditMessageText, SendMessage, SendPhoto
from aiogram.webhook.aiohttp_server import SimpleRequestHandler
from aiohttp import web

from forge_jobs import Dead
from forge_jobs.core.selection import Filter
from telegram_gateway.calls import ALLOWED_METHODS
from telegram_gateway.handlers.answers import calls_of
from telegram_gateway.update import read_update
from tests.gateway.backend import Backend, backend
from tests.gateway.conftest import SECRET, TOKEN, Bots, post, update
from tests.gateway.fake_api import fake_api

KEYS = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}]]}


@pytest.fixture
async def bots(tmp_path: Path) -> AsyncIterator[Bots]:
    async with fake_api() as api:
        yield Bots(api, tmp_path)


@pytest.fixture
async def back() -> AsyncIterator[Backend]:
    async with backend() as service:
        yield service


def http_bot(url: str, more: str = "") -> str:
    target = f"{{url: '{url}', network: private}}"
    return (
        f"bots: {{back: {{handler: http, async: true, requireAuth: false, http: {target}{more}}}}}"
    )


async def answered(bots: Bots, url: str, body: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The calls that follow from the service's answer to this update."""
    gateway = bots.gateway(http_bot(url, ", deadMessage: dead"))
    async with gateway.running(workers=False):
        assert (await post(gateway, "back", body)).is_success
        assert gateway.forge is not None
        await gateway.forge.drain()
    return [(method, parameters) for _, method, parameters in bots.api.calls]


def parameters_of(method: str) -> dict[str, Any]:
    """Some parameters that Telegram takes; the gateway passes all of them on."""
    return {"parse_mode": "HTML", "reply_markup": KEYS, "message_id": 5, f"{method}_only": [1]}


def encoded(form: str, method: str) -> tuple[bytes, str]:
    """An answer that calls the method, and its content type."""
    if form == "json":
        fields = {"method": method.upper(), **parameters_of(method)}
        return json.dumps(fields).encode(), "application/json"
    texts = {"method": method, **texts_of(parameters_of(method))}
    if form == "urlencoded":
        return urlencode(texts).encode(), "application/x-www-form-urlencoded; charset=utf-8"
    parts = {key: (None, value) for key, value in texts.items()}
    request = httpx2.Request("POST", "http://x", files=parts)
    return request.read(), request.headers["content-type"]


def texts_of(values: dict[str, Any]) -> dict[str, str]:
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()
    }


@pytest.mark.parametrize("form", ["json", "urlencoded", "multipart"])
async def test_g5_every_allowed_method_is_taken_in_telegrams_form(
    bots: Bots, back: Backend, form: str
) -> None:
    methods = sorted(ALLOWED_METHODS)
    for method in methods:
        body, kind = encoded(form, method)
        back.say(200, body, content_type=kind)
    gateway = bots.gateway(http_bot(back.url))
    async with gateway.running(workers=False):
        for number in range(len(methods)):
            assert (await post(gateway, "back", update(number, chat=number + 1))).is_success
        assert gateway.forge is not None
        await gateway.forge.drain()
    called = {method: given for _, method, given in bots.api.calls}
    assert sorted(called) == methods
    for method, given in called.items():
        wanted = parameters_of(method)
        chat = given.pop("chat_id", None)
        assert (chat is None) == method.startswith("answer")
        assert given == (wanted if form == "json" else texts_of(wanted))


async def test_g5_parameters_beside_text_are_used(bots: Bots, back: Backend) -> None:
    answer = {"text": "<b>hi</b>", "parse_mode": "HTML", "reply_markup": KEYS, "status": "ok"}
    back.say(200, json.dumps(answer).encode())
    [(method, given)] = await answered(bots, back.url, update(1))
    assert method == "sendMessage"
    assert given == {"chat_id": 7, "text": "<b>hi</b>", "parse_mode": "HTML", "reply_markup": KEYS}


async def test_g5_a_long_text_has_one_reply_and_one_keyboard() -> None:
    answer = {"text": "word " * 2_000, "reply_markup": KEYS, "reply_parameters": {"message_id": 1}}
    calls = calls_of(answer, read_update(update(1)))
    assert len(calls) == 3
    assert ["reply_parameters" in call.parameters for call in calls] == [True, False, False]
    assert ["reply_markup" in call.parameters for call in calls] == [False, False, True]
    with_markup = calls_of({**answer, "parse_mode": "HTML"}, read_update(update(1)))
    assert [call.parameters["text"] for call in with_markup] == [answer["text"]]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"method": "setWebhook", "url": "https://evil"}, "'setWebhook', which an answer must not"),
        ({"method": "getMe"}, "'getMe', which an answer must not call"),
        ({"method": 5}, "'5', which an answer must not call"),
        ({"messages": [{"method": "banChatMember"}]}, "messages[0] in the answer calls 'banChat"),
        ({"method": "sendMessage", "chat_id": 8, "text": "x"}, "another chat"),
        ({"text": "x", "chat_id": "@other"}, "another chat"),
        ({"method": "sendMessage", "messages": []}, "use one of them"),
        ({"method": "editMessageText", "inline_message_id": "i", "text": "x"}, "inline message"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_g5_what_is_refused_is_named(answer: dict[str, Any], reason: str) -> None:
    with pytest.raises(Dead) as refused:
        calls_of(answer, read_update(update(1)))
    assert reason in refused.value.message


def test_g5_the_inline_message_of_the_update_is_edited() -> None:
    query = {"id": "1", "from": {"id": 7}, "inline_message_id": "i1", "data": "x"}
    read = read_update(json.dumps({"update_id": 1, "callback_query": query}).encode())
    answer = {"method": "editMessageText", "inline_message_id": "i1", "text": "new"}
    [call] = calls_of(answer, read)
    assert call.parameters == {"inline_message_id": "i1", "text": "new"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data; boundary=b", b"not a form"),
        ("multipart/form-data", b"--b--"),
        ("multipart/form-data; boundary=b",
         b'--b\r\ncontent-disposition: form-data; name="text"\r\n\r\n\xff\r\n--b--\r\n'),
        ("application/x-www-form-urlencoded", b"text=%ff"),
        ("application/x-www-form-urlencoded", b"a=1&" * 500),
    ],
)  # fmt: skip
async def test_g5_a_form_that_cannot_be_read_is_dead(
    bots: Bots, back: Backend, kind: str, body: bytes
) -> None:
    back.say(200, body, content_type=kind)
    assert [said["text"] for _, said in await answered(bots, back.url, update(1))] == ["dead"]


# ---------------------------------------------------------------------- aiogram as the service


async def aiogram_service(secret: str) -> AsyncIterator[str]:
    """An unchanged aiogram bot that answers in the response to the webhook."""
    dispatcher = Dispatcher()

    @dispatcher.message(lambda message: message.text == "photo")
    async def photo(message: types.Message) -> SendPhoto:
        return message.answer_photo("https://example.org/a.jpg", caption="größer & mehr")

    @dispatcher.message(lambda message: message.text == "upload")
    async def upload(message: types.Message) -> SendPhoto:
        return message.answer_photo(types.BufferedInputFile(b"\x89PNG", "a.png"))

    @dispatcher.message()
    async def echo(message: types.Message) -> SendMessage:
        keys = types.InlineKeyboardMarkup.model_validate(KEYS)
        return message.answer(f"<b>{message.text}</b>", parse_mode="HTML", reply_markup=keys)

    @dispatcher.callback_query()
    async def pressed(query: types.CallbackQuery) -> EditMessageText:
        assert isinstance(query.message, types.Message)
        return query.message.edit_text("pressed")

    application = web.Application()
    bot = AiogramBot(TOKEN.format(number=102))
    SimpleRequestHandler(dispatcher, bot, handle_in_background=False, secret_token=secret).register(
        application, "/update"
    )
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/update"
    finally:
        await runner.cleanup()
        await bot.session.close()


@pytest.fixture
async def aiogram_url() -> AsyncIterator[str]:
    async for url in aiogram_service(SECRET):
        yield url


DATED = {"date": 1_700_000_000, "from": {"id": 7, "is_bot": False, "first_name": "Ann"}}


@pytest.mark.parametrize(
    ("text", "method", "expected"),
    [
        ("hi", "sendMessage", {"text": "<b>hi</b>", "parse_mode": "HTML", "chat_id": 7}),
        ("photo", "sendPhoto", {"photo": "https://example.org/a.jpg", "caption": "größer & mehr"}),
    ],
)
async def test_g5_g11g_aiograms_replies_and_its_check_of_the_secret_work(
    bots: Bots, aiogram_url: str, text: str, method: str, expected: dict[str, Any]
) -> None:
    [(called, given)] = await answered(bots, aiogram_url, update(1, text, **DATED))
    assert called == method
    assert expected.items() <= given.items()


async def test_g5_aiogram_edits_the_message_of_a_button(bots: Bots, aiogram_url: str) -> None:
    chat = {"id": 7, "type": "private"}
    message = {"message_id": 5, "chat": chat, "text": "old", **DATED}
    query = {"id": "1", "from": DATED["from"], "chat_instance": "1", "data": "y"}
    body = json.dumps({"update_id": 1, "callback_query": {**query, "message": message}}).encode()
    [(called, given)] = await answered(bots, aiogram_url, body)
    assert called == "editMessageText"
    assert given == {"chat_id": 7, "message_id": "5", "text": "pressed"}


async def test_g5_an_uploaded_file_is_refused_with_the_remedy(bots: Bots, aiogram_url: str) -> None:
    gateway = bots.gateway(http_bot(aiogram_url))
    async with gateway.running(workers=False):
        await post(gateway, "back", update(1, "upload", **DATED))
        assert gateway.forge is not None
        await gateway.forge.drain()
        store = await gateway.forge.aready()
        page = await store.jobs.page(Filter(queue="updates.back"), limit=10)
    assert "uploads a file" in (page.jobs[0].last_error or "")
    assert "use a URL or a file_id" in (page.jobs[0].last_error or "")


# ---------------------------------------------------------------------- business and topics


def business_message(number: int, **more: Any) -> bytes:
    read = json.loads(update(number, business_connection_id="biz1", **more))
    return json.dumps({"update_id": number, "business_message": read["message"]}).encode()


@pytest.mark.parametrize(
    ("answer", "carried"),
    [
        ({"text": "ok"}, True),
        ({"method": "sendPhoto", "photo": "x"}, True),
        ({"messages": [{"method": "sendChatAction", "parameters": {"action": "typing"}}]}, True),
        ({"method": "editMessageText", "message_id": 1, "text": "x"}, True),
        ({"method": "setMessageReaction", "message_id": 1}, False),
        ({"method": "deleteMessage", "message_id": 1}, False),
        ({"method": "sendMessage", "text": "x", "business_connection_id": "own"}, None),
    ],
)
async def test_g10_replies_carry_the_business_connection(
    bots: Bots, back: Backend, answer: dict[str, Any], carried: bool | None
) -> None:
    back.say(200, json.dumps(answer).encode())
    [(_, given)] = await answered(bots, back.url, business_message(1))
    expected = "own" if carried is None else "biz1" if carried else None
    assert given.get("business_connection_id") == expected
    assert given["chat_id"] == 7


async def test_g10_the_notice_about_a_dead_update_carries_it_too(bots: Bots, back: Backend) -> None:
    back.say(422)
    topic = {"message_thread_id": 3, "is_topic_message": True}
    [(_, given)] = await answered(bots, back.url, business_message(1, **topic))
    expected = {"business_connection_id": "biz1", "message_thread_id": 3}
    assert given == {"chat_id": 7, "text": "dead", **expected}


@pytest.mark.parametrize("is_topic", [True, False])
@pytest.mark.parametrize("answer", [{"text": "x"}, {"method": "sendDice"}], ids=["text", "method"])
def test_g10_replies_stay_in_the_topic(answer: dict[str, Any], is_topic: bool) -> None:
    more = {"message_thread_id": 3, **({"is_topic_message": True} if is_topic else {})}
    [call] = calls_of(answer, read_update(update(1, chat=-5, **more)))
    assert call.parameters.get("message_thread_id") == (3 if is_topic else None)
