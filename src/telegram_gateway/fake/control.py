"""The control API of the fake Telegram, under /control: act as a user, read chats, inject faults,
advance the clock. JSON in, JSON out."""

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
_RESERVED_FIELDS: Final = frozenset(
    {"text", "chat", "user", "name", "from", "message_id", "date", "bot"}
)


class _BadControlRequest(Exception):
    """The request is invalid; the message says what to send instead."""


ControlAction = Callable[[Request], Awaitable[Any]]


def control_routes(fake: "FakeTelegram") -> list[Route]:
    """Every route of the control API."""
    control = _ControlApi(fake)
    bot = "/control/bots/{bot:int}"
    return [
        Route("/control/bots", _json_endpoint(control.bots), methods=["GET"]),
        Route("/control/bots", _json_endpoint(control.add_bot), methods=["POST"]),
        Route(f"{bot}/messages", _json_endpoint(control.say), methods=["POST"]),
        Route(f"{bot}/edits", _json_endpoint(control.edit), methods=["POST"]),
        Route(f"{bot}/presses", _json_endpoint(control.press), methods=["POST"]),
        Route(f"{bot}/blocks", _json_endpoint(control.block), methods=["POST"]),
        Route(f"{bot}/updates", _json_endpoint(control.push), methods=["POST"]),
        Route(f"{bot}/chats/{{chat}}", _json_endpoint(control.chat), methods=["GET"]),
        Route("/control/calls", _json_endpoint(control.calls), methods=["GET"]),
        Route("/control/faults", _json_endpoint(control.fault), methods=["POST"]),
        Route("/control/clock", _json_endpoint(control.leap), methods=["POST"]),
    ]


def _json_endpoint(action: ControlAction) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        # Browsers send JSON across origins only after a CORS preflight, which fails here.
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        if request.method == "POST" and kind != "application/json":
            return JSONResponse({"error": "send application/json"}, 415)
        try:
            return JSONResponse(await action(request))
        except Refusal as refusal:
            return JSONResponse({"error": refusal.description}, refusal.code)
        except (_BadControlRequest, ValueError) as error:
            return JSONResponse({"error": str(error)}, 400)
        except KeyError as error:
            return JSONResponse({"error": f"there is no {error.args[0]}"}, 404)

    return answer


class _ControlApi:
    def __init__(self, fake: "FakeTelegram") -> None:
        self._fake = fake

    # ------------------------------------------------------------------ reading

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
        """The entries of a chat after ``after``; waits up to ``wait`` seconds for a new one."""
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
        """Create a bot with a token, a name and a username."""
        body = await _json_body(request)
        bot = self._fake.bot(
            _text_field(body, "token"),
            name=_text_field(body, "name", ""),
            username=_text_field(body, "username", ""),
        )
        return {"id": bot.id, "username": bot.username}

    async def say(self, request: Request) -> Any:
        """Send a message as a user."""
        body = await _json_body(request)
        update = self._fake.say(
            self._bot(request),
            _text_field(body, "text", ""),
            chat=_int_field(body, "chat", 7),
            user=_int_field(body, "user", 0) or None,
            name=_text_field(body, "name", "Ann"),
            **_more_fields(body),
        )
        return {"update_id": update}

    async def edit(self, request: Request) -> Any:
        """Edit a message as a user."""
        body = await _json_body(request)
        number = _int_field(body, "message_id")
        chat = _int_field(body, "chat", 7)
        return {
            "update_id": self._fake.edit(
                self._bot(request), number, _text_field(body, "text"), chat=chat
            )
        }

    async def press(self, request: Request) -> Any:
        """Press a button as a user."""
        body = await _json_body(request)
        number = _int_field(body, "message_id")
        chat = _int_field(body, "chat", 7)
        return {
            "update_id": self._fake.press(
                self._bot(request), number, _text_field(body, "data"), chat=chat
            )
        }

    async def block(self, request: Request) -> Any:
        """Block or unblock the bot as a user."""
        body = await _json_body(request)
        blocked = body.get("blocked", True) is True
        chat = _int_field(body, "chat", 7)
        return {"update_id": self._fake.block(self._bot(request), chat=chat, blocked=blocked)}

    async def push(self, request: Request) -> Any:
        """Create an update of any kind."""
        body = await _json_body(request)
        inner = body.get("body")
        if not isinstance(inner, dict):
            raise _BadControlRequest("body must be an object: what the update holds under its kind")
        found = cast("dict[str, Any]", inner)
        return {"update_id": self._fake.push(self._bot(request), _text_field(body, "kind"), found)}

    async def fault(self, request: Request) -> Any:
        """Inject a fault into the next calls."""
        body = await _json_body(request)
        known = ", ".join(Trouble)
        try:
            trouble = Trouble(_text_field(body, "trouble"))
        except ValueError:
            raise _BadControlRequest(f"trouble must be one of {known}") from None
        bot = _int_field(body, "bot", 0)
        self._fake.faults.append(
            Fault(
                trouble=trouble,
                method=_text_field(body, "method", ""),
                bot_id=bot or None,
                times=_int_field(body, "times", 1),
                seconds=_seconds_field(body, 1.0),
                code=_int_field(body, "code", 0) or None,
                chat=_int_field(body, "chat", 0),
            )
        )
        return {"faults": len(self._fake.faults)}

    async def leap(self, request: Request) -> Any:
        """Advance the clock."""
        body = await _json_body(request)
        clock = self._fake.clock
        if not isinstance(clock, LeapClock):
            raise _BadControlRequest("this server's clock cannot leap: start it with a LeapClock")
        clock.leap(_seconds_field(body, 0.0))
        return {"now": clock.now() // 1_000_000}

    def _bot(self, request: Request) -> "FakeBot":
        number = request.path_params["bot"]
        found = self._fake.bots.get(number)
        if found is None:
            raise KeyError(f"bot {number}: call getMe with its token first")
        return found


async def _json_body(request: Request) -> dict[str, Any]:
    try:
        found: Any = msgspec.json.decode(await request.body())
    except msgspec.MsgspecError:
        raise _BadControlRequest("the body is not JSON") from None
    if not isinstance(found, dict):
        raise _BadControlRequest("the body must be a JSON object")
    return cast("dict[str, Any]", found)


def _text_field(body: dict[str, Any], name: str, default: str | None = None) -> str:
    found = body.get(name, default)
    if not isinstance(found, str):
        raise _BadControlRequest(f"{name} must be a string")
    return found


def _int_field(body: dict[str, Any], name: str, default: int | None = None) -> int:
    found = body.get(name, default)
    if not isinstance(found, int) or isinstance(found, bool):
        raise _BadControlRequest(f"{name} must be a whole number")
    return found


def _seconds_field(body: dict[str, Any], default: float) -> float:
    found = body.get("seconds", default)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise _BadControlRequest("seconds must be a number")
    if not 0 <= found <= _MAX_SECONDS:
        raise _BadControlRequest(f"seconds must be from 0 to {_MAX_SECONDS:,}")
    return float(found)


def _more_fields(body: dict[str, Any]) -> dict[str, Any]:
    found = body.get("more", {})
    if not isinstance(found, dict):
        raise _BadControlRequest("more must be an object: further fields of the message")
    fields = cast("dict[str, Any]", found)
    taken = sorted(fields.keys() & _RESERVED_FIELDS)
    if taken:
        raise _BadControlRequest(
            f"more must not contain {', '.join(taken)}: the message has that already"
        )
    return fields
