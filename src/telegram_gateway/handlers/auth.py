"""The auth handler: a code starts a session for all bots of the gateway, in private chats only.

It always runs inline and never as a job, so that the code is neither stored nor logged.
"""

import hmac
from collections.abc import Awaitable, Callable
from typing import Final

from forge_jobs import Clock
from telegram_gateway.calls import Call, message
from telegram_gateway.storage import GatewayStore, Reply
from telegram_gateway.update import Update

SECOND: Final = 1_000_000
MAX_WRONG: Final = 5
WRONG_WITHIN_S: Final = 15 * 60
_HELP: Final = (
    "/auth <code> opens a session.\n/whoami shows your id and session.\n/logout ends the session."
)
_USAGE: Final = "Write /auth and your code in one message."
_WRONG: Final = "This code is not valid."


class AuthHandler:
    """``reply`` builds a message that is stored in the transaction of a change; ``delete`` removes
    the message that contained the code, best effort."""

    def __init__(
        self,
        *,
        secret: bytes,
        session_s: float,
        storage: GatewayStore,
        clock: Clock,
        reply: Callable[[Call], Reply],
        delete: Callable[[Update], Awaitable[None]],
    ) -> None:
        self._secret = secret
        self._session_s = session_s
        self._storage = storage
        self._clock = clock
        self._reply = reply
        self._delete = delete

    async def answer(self, update: Update, attempt: int) -> list[Call]:
        """Sends its replies itself, in the transaction of each change; returns no calls."""
        user, chat, words = update.user_id, update.chat_id, update.words
        if update.kind != "message" or update.chat_type != "private":
            return []
        if user is None or chat is None:
            return []
        now = self._clock.now()
        match words[:2]:
            case ["/auth"]:
                await self._reply(message(chat, _USAGE)).aenqueue()
            case ["/auth", code]:
                await self._try_code(update, user, chat, code, now)
            case ["/whoami", *_]:
                await self._reply(message(chat, await self._whoami_text(user, now))).aenqueue()
            case ["/logout", *_]:
                reply = self._reply(message(chat, "You are logged out."))
                await self._storage.end_session(user, reply)
            case _:
                await self._reply(message(chat, _HELP)).aenqueue()
        return []

    async def close(self) -> None:
        return

    async def _try_code(self, update: Update, user: int, chat: int, code: str, now: int) -> None:
        await self._delete(update)
        since = now - WRONG_WITHIN_S * SECOND
        if await self._storage.wrong_codes(user, since) >= MAX_WRONG:
            return
        if not hmac.compare_digest(code.encode("utf-8", "replace"), self._secret):
            await self._storage.record_wrong_code(user, now, self._reply(message(chat, _WRONG)))
            return
        until = now + int(self._session_s * SECOND)
        text = f"You are logged in for {_format_duration(self._session_s)}."
        await self._storage.start_session(user, until, self._reply(message(chat, text)))

    async def _whoami_text(self, user: int, now: int) -> str:
        until = await self._storage.session_until(user, now)
        if until is None:
            return f"Your id is {user}. You have no session."
        return (
            f"Your id is {user}. Your session ends in {_format_duration((until - now) / SECOND)}."
        )


def _format_duration(seconds: float) -> str:
    minutes = max(round(seconds / 60), 1)
    hours, left = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h" if not left else f"{hours} h {left} min"
