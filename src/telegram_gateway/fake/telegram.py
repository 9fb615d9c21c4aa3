"""FakeTelegram: bots, chats and deliveries tied together. The HTTP side of it is in ``server``."""

import re
from collections import deque
from typing import Any, Final

import httpx2

from forge_jobs import SYSTEM_CLOCK, SYSTEM_ENTROPY, Clock, Entropy

from . import user_actions
from .call_parameters import CallParameters
from .delivery import Delivery
from .faults import Fault
from .flood_control import FloodControl
from .profile import PROFILE
from .receiving import Receiving, wake_poll
from .refusal import Refusal, too_many
from .sending import Sending
from .updates import KINDS, is_wanted, new_update
from .world import Call, Chat, FakeBot, Method

_TOKEN: Final = re.compile(r"[1-9]\d{0,15}:[A-Za-z0-9_-]{10,100}")
_CALLS_KEPT: Final = 200_000


class FakeTelegram:
    """A Telegram for tests and demonstrations.

    A token that looks like one makes a bot at its first use, unless ``known_only``: then a token
    that ``bot`` did not name is answered with 401, as the real one does. ``local`` allows webhooks
    at any address, as a Bot API server of one's own does. ``flooding`` limits messages; without it
    only a fault that was ordered is answered with 429.
    """

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        local: bool = True,
        known_only: bool = False,
        flooding: FloodControl | None = None,
        answer_within_s: float = 60.0,
    ) -> None:
        self.clock = clock
        self.base = ""
        self.bots: dict[int, FakeBot] = {}
        self.calls: deque[tuple[int, Call]] = deque(maxlen=_CALLS_KEPT)
        self.faults: list[Fault] = []
        self._entropy = entropy
        self._known_only = known_only
        self._flooding = flooding
        self._answer_within_s = answer_within_s
        self._client: httpx2.AsyncClient | None = None
        self._queries = 0
        self._methods: dict[str, Method] = {
            **PROFILE,
            **Receiving(clock, self._start_delivery, local=local).methods,
            **Sending(clock).methods,
        }

    # ------------------------------------------------------------------ bots

    def bot(self, token: str, *, name: str = "", username: str = "") -> FakeBot:
        """The bot of a token; it is made if there is none."""
        if not _TOKEN.fullmatch(token):
            raise ValueError("a token is a number, a colon and ten or more letters or digits")
        number = int(token.partition(":")[0])
        found = self.bots.get(number)
        if found is None:
            found = self.bots[number] = FakeBot(
                token,
                name or f"Bot {number}",
                username or f"fake_{number}_bot",
                next_update=100_000_000 + self._entropy.bits(29),
            )
        return found

    def known(self, token: str) -> FakeBot:
        """The bot that calls; 401 for a stranger."""
        if not _TOKEN.fullmatch(token):
            raise Refusal(401, "Unauthorized")
        found = self.bots.get(int(token.partition(":")[0]))
        if found is None and not self._known_only:
            found = self.bot(token)
        if found is None or found.token != token or found.revoked:
            raise Refusal(401, "Unauthorized")
        return found

    # ------------------------------------------------------------------ acting as a user

    def say(
        self,
        bot: FakeBot,
        text: str,
        *,
        chat: int = 7,
        user: int | None = None,
        name: str = "Ann",
        **more: Any,
    ) -> int:
        """Somebody writes to the bot; the number of the update, 0 if the bot does not want it.

        A chat above zero is private. ``more`` are further fields of the message, a photo for
        instance (then the text may be empty).
        """
        room = user_actions.opened(bot, chat, name)
        who = user_actions.person(user if user is not None else abs(chat), name)
        message = user_actions.said(bot, room, who, text, self.clock.now(), more)
        return self.push(bot, "message", message)

    def post(self, bot: FakeBot, text: str, *, channel: int = -1_002_000_000_000) -> int:
        """A text appears in a channel that the bot reads."""
        room = bot.chats.get(channel)
        if room is None:
            about = {"id": channel, "type": "channel", "title": "News", "username": "fake_news"}
            room = bot.chats[channel] = Chat(about)
        now = self.clock.now()
        message = user_actions.said(
            bot, room, user_actions.person(1), text, now, {"sender_chat": room.about}
        )
        del message["from"]
        return self.push(bot, "channel_post", message)

    def edit(self, bot: FakeBot, message_id: int, text: str, *, chat: int = 7) -> int:
        """Somebody changes a message of theirs."""
        room = user_actions.opened(bot, chat)
        message = user_actions.edited(room, message_id, text, self.clock.now())
        return self.push(bot, "edited_message", message)

    def press(
        self,
        bot: FakeBot,
        message_id: int,
        data: str,
        *,
        chat: int = 7,
        user: int | None = None,
    ) -> int:
        """Somebody presses a button under a message of the bot."""
        self._queries += 1
        who = user_actions.person(user if user is not None else abs(chat))
        query = f"{bot.id}{self._queries:06d}"
        room, now = user_actions.opened(bot, chat), self.clock.now()
        body = user_actions.pressed(bot, room, who, message_id, data, now, query)
        return self.push(bot, "callback_query", body)

    def block(self, bot: FakeBot, *, chat: int = 7, blocked: bool = True) -> int:
        """Somebody blocks the bot: what it sends is refused from now on."""
        room, who = user_actions.opened(bot, chat), user_actions.person(abs(chat))
        body = user_actions.member_update(bot, room, who, self.clock.now(), blocked=blocked)
        return self.push(bot, "my_chat_member", body)

    def ask_inline(self, bot: FakeBot, text: str, *, user: int = 7) -> int:
        """Somebody types the bot's name and a question, in whatever chat."""
        self._queries += 1
        body = {
            "id": f"{bot.id}{self._queries:06d}",
            "from": user_actions.person(user),
            "query": text,
            "offset": "",
            "chat_type": "private",
        }
        return self.push(bot, "inline_query", body)

    def react(self, bot: FakeBot, message_id: int, emoji: str, *, chat: int = 7) -> int:
        """Somebody reacts to a message."""
        room = user_actions.opened(bot, chat)
        now = self.clock.now()
        room.add(now, "user", "reaction", {"message_id": message_id, "emoji": emoji})
        body = {
            "chat": room.about,
            "message_id": message_id,
            "user": user_actions.person(abs(chat)),
            "date": now // 1_000_000,
            "old_reaction": [],
            "new_reaction": [{"type": "emoji", "emoji": emoji}],
        }
        return self.push(bot, "message_reaction", body)

    def push(self, bot: FakeBot, kind: str, body: dict[str, Any]) -> int:
        """An update of any kind, whatever is in it; 0 if the bot does not want that kind."""
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no kind of update")
        if not is_wanted(kind, bot.allowed):
            return 0
        update = new_update(bot.next_update, kind, body, self.clock.now())
        bot.next_update += 1
        bot.waiting[update.id] = update
        if bot.delivery is not None:
            bot.delivery.offer(update)
        wake_poll(bot)
        return update.id

    # ------------------------------------------------------------------ methods

    async def perform(
        self, bot: FakeBot, method: str, given: CallParameters, *, way: str = "http"
    ) -> Any:
        """What a method gives; Refusal if Telegram would refuse."""
        call = Call(method, given.values, way)
        self.calls.append((bot.id, call))
        found = self._methods.get(method.lower())
        if found is None:
            raise Refusal(404, "Not Found: method not found")
        if self._flooding is not None and method.lower() == "sendmessage":
            wait_s = self._flooding.wait_s(bot.id, given.text("chat_id"), self.clock)
            if wait_s:
                raise too_many(wait_s)
        return await found(bot, given, call)

    def fault_for(self, bot: FakeBot, method: str) -> Fault | None:
        """The trouble ordered for this call, if any; it is used up by this."""
        for fault in self.faults:
            if fault.meets(bot.id, method):
                fault.times -= 1
                if fault.times < 1:
                    self.faults.remove(fault)
                return fault
        return None

    # ------------------------------------------------------------------ delivery

    def _start_delivery(self, bot: FakeBot) -> None:
        if bot.webhook is None:
            return
        if self._client is None:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
            self._client = httpx2.AsyncClient(
                verify=False, trust_env=False, timeout=None, limits=limits
            )

        async def perform(method: str, given: CallParameters) -> object:
            return await self.perform(bot, method, given, way="webhook")

        def gone() -> None:
            if bot.delivery is not None:
                bot.delivery.close()
            bot.delivery = bot.webhook = None

        bot.delivery = Delivery(
            bot,
            bot.webhook,
            clock=self.clock,
            entropy=self._entropy,
            client=self._client,
            perform=perform,
            gone=gone,
            answer_within_s=self._answer_within_s,
        )

    async def close(self) -> None:
        """End deliveries and polls; what waits is forgotten with this object."""
        for bot in self.bots.values():
            wake_poll(bot)
            if bot.delivery is not None:
                bot.delivery.close()
                await bot.delivery.closed()
                bot.delivery = None
        if self._client is not None:
            await self._client.aclose()
            self._client = None
