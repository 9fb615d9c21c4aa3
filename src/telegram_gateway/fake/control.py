"""The control side of the fake Telegram, under /control: act as a user, read what was said, order
trouble, let time pass. JSON in, JSON out."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .clocks import LeapClock
from .faults import Fault, Trouble
from .refusal import Refusal

if TYPE_CHECKING:
    from .telegram import FakeTelegram
    from .world import FakeBot

_MAX_WAIT_S: Final = 25.0
_MAX_SECONDS: Final = 366 * 86_400
_TAKEN: Final = frozenset({"text", "chat", "user", "name", "from", "message_id", "date", "bot"})


class _Bad(Exception):
    """The request cannot be done; the message says what to do instead."""


Answer = Callable[[Request], Awaitable[Any]]


def control_routes(fake: "FakeTelegram") -> list[Route]:
    """Every route of the control side."""
    control = _Control(fake)
    bot = "/control/bots/{bot:int}"
    return [
        Route("/control/bots", _answered(control.bots), methods=["GET"]),
        Route("/control/bots", _answered(control.add_bot), methods=["POST"]),
        Route(f"{bot}/messages", _answered(control.say), methods=["POST"]),
        Route(f"{bot}/edits", _answered(control.edit), methods=["POST"]),
        Route(f"{bot}/presses", _answered(control.press), methods=["POST"]),
        Route(f"{bot}/blocks", _answered(control.block), methods=["POST"]),
        Route(f"{bot}/updates", _answered(control.push), methods=["POST"]),
        Route(f"{bot}/chats/{{chat}}", _answered(control.chat), methods=["GET"]),
        Route("/control/calls", _answered(control.calls), methods=["GET"]),
        Route("/control/faults", _answered(control.fault), methods=["POST"]),
        Route("/control/clock", _answered(control.leap), methods=["POST"]),
    ]


def _answered(do: Answer) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        # A page of another site can send no JSON here without asking first.
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if request.method == "POST" and kind != "application/json":
            return JSONResponse({"error": "send application/json"}, 415)
        try:
            return JSONResponse(await do(request))
        except Refusal as refusal:
            return JSONResponse({"error": refusal.description}, refusal.code)
        except (_Bad, ValueError) as error:
            return JSONResponse({"error": str(error)}, 400)
        except KeyError as error:
            return JSONResponse({"error": f"there is no {error.args[0]}"}, 404)

    return answer


class _Control:
    def __init__(self, fake: "FakeTelegram") -> None:
        self._fake = fake

    # ------------------------------------------------------------------ looking

    async def bots(self, request: Request) -> Any:
        """Every bot, without its token."""
        return [
            {
                "id": bot.id,
                "name": bot.name,
                "username": bot.username,
                "webhook": "" if bot.webhook is None else bot.webhook.url,
                "waiting": len(bot.waiting),
                "chats": list(bot.chats),
            }
            for bot in self._fake.bots.values()
        ]

    async def chat(self, request: Request) -> Any:
        """What happened in a chat after entry ``after``; ``wait`` seconds at most for news."""
        bot = self._bot(request)
        number = int(request.path_params["chat"])
        chat = bot.chats.get(number)
        if chat is None:
            raise KeyError(f"chat {number}")
        after = int(request.query_params.get("after", "0"))
        wait_s = min(float(request.query_params.get("wait", "0")), _MAX_WAIT_S)
        if wait_s > 0 and len(chat.entries) <= after:
            try:
                async with asyncio.timeout(wait_s):
                    await chat.changed.wait()
            except TimeoutError:
                pass
        return [entry.shown() for entry in chat.entries[max(after, 0) :]]

    async def calls(self, request: Request) -> Any:
        """Every call of every bot, in order."""
        return [
            {"bot": bot, "method": call.method, "parameters": call.parameters, "way": call.way}
            for bot, call in self._fake.calls
        ]

    # ------------------------------------------------------------------ acting

    async def add_bot(self, request: Request) -> Any:
        """A bot with a token, a name and a username."""
        body = await _body(request)
        bot = self._fake.bot(
            _text(body, "token"), name=_text(body, "name", ""), username=_text(body, "username", "")
        )
        return {"id": bot.id, "username": bot.username}

    async def say(self, request: Request) -> Any:
        """A message of a user."""
        body = await _body(request)
        update = self._fake.say(
            self._bot(request),
            _text(body, "text", ""),
            chat=_whole(body, "chat", 7),
            user=_whole(body, "user", 0) or None,
            name=_text(body, "name", "Ann"),
            **_more(body),
        )
        return {"update_id": update}

    async def edit(self, request: Request) -> Any:
        """A user changes a message."""
        body = await _body(request)
        number = _whole(body, "message_id")
        chat = _whole(body, "chat", 7)
        return {
            "update_id": self._fake.edit(self._bot(request), number, _text(body, "text"), chat=chat)
        }

    async def press(self, request: Request) -> Any:
        """A user presses a button."""
        body = await _body(request)
        number = _whole(body, "message_id")
        chat = _whole(body, "chat", 7)
        return {
            "update_id": self._fake.press(
                self._bot(request), number, _text(body, "data"), chat=chat
            )
        }

    async def block(self, request: Request) -> Any:
        """A user blocks the bot, or lets it in again."""
        body = await _body(request)
        blocked = body.get("blocked", True) is True
        chat = _whole(body, "chat", 7)
        return {"update_id": self._fake.block(self._bot(request), chat=chat, blocked=blocked)}

    async def push(self, request: Request) -> Any:
        """An update of any kind."""
        body = await _body(request)
        inner = body.get("body")
        if not isinstance(inner, dict):
            raise _Bad("body must be an object: what the update holds under its kind")
        found = cast("dict[str, Any]", inner)
        return {"update_id": self._fake.push(self._bot(request), _text(body, "kind"), found)}

    async def fault(self, request: Request) -> Any:
        """Trouble for the next calls."""
        body = await _body(request)
        known = ", ".join(Trouble)
        try:
            trouble = Trouble(_text(body, "trouble"))
        except ValueError:
            raise _Bad(f"trouble must be one of {known}") from None
        bot = _whole(body, "bot", 0)
        self._fake.faults.append(
            Fault(
                trouble=trouble,
                method=_text(body, "method", ""),
                bot_id=bot or None,
                times=_whole(body, "times", 1),
                seconds=_seconds(body, 1.0),
                code=_whole(body, "code", 0) or None,
                chat=_whole(body, "chat", 0),
            )
        )
        return {"faults": len(self._fake.faults)}

    async def leap(self, request: Request) -> Any:
        """Let time pass at once."""
        body = await _body(request)
        clock = self._fake.clock
        if not isinstance(clock, LeapClock):
            raise _Bad("this server's clock cannot leap: start it with a LeapClock")
        clock.leap(_seconds(body, 0.0))
        return {"now": clock.now() // 1_000_000}

    def _bot(self, request: Request) -> "FakeBot":
        number = request.path_params["bot"]
        found = self._fake.bots.get(number)
        if found is None:
            raise KeyError(f"bot {number}: call getMe with its token first")
        return found


async def _body(request: Request) -> dict[str, Any]:
    try:
        found: Any = msgspec.json.decode(await request.body())
    except msgspec.MsgspecError:
        raise _Bad("the body is no JSON") from None
    if not isinstance(found, dict):
        raise _Bad("the body must be a JSON object")
    return cast("dict[str, Any]", found)


def _text(body: dict[str, Any], name: str, default: str | None = None) -> str:
    found = body.get(name, default)
    if not isinstance(found, str):
        raise _Bad(f"{name} must be a text")
    return found


def _whole(body: dict[str, Any], name: str, default: int | None = None) -> int:
    found = body.get(name, default)
    if not isinstance(found, int) or isinstance(found, bool):
        raise _Bad(f"{name} must be a whole number")
    return found


def _seconds(body: dict[str, Any], default: float) -> float:
    found = body.get("seconds", default)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise _Bad("seconds must be a number")
    if not 0 <= found <= _MAX_SECONDS:
        raise _Bad(f"seconds must be from 0 to {_MAX_SECONDS:,}")
    return float(found)


def _more(body: dict[str, Any]) -> dict[str, Any]:
    found = body.get("more", {})
    if not isinstance(found, dict):
        raise _Bad("more must be an object: further fields of the message")
    fields = cast("dict[str, Any]", found)
    taken = sorted(fields.keys() & _TAKEN)
    if taken:
        raise _Bad(f"more must not hold {', '.join(taken)}: the message has that already")
    return fields
