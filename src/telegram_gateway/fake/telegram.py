"""FakeTelegram: the bots, their chats and deliveries. Its HTTP server is in ``server``."""

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
from .receiving import Receiving, wake_get_updates
from .refusal import Refusal, too_many_requests
from .sending import Sending
from .updates import KINDS, is_wanted, new_update
from .world import Chat, FakeBot, Method, ReceivedCall

_TOKEN: Final = re.compile(r"[1-9]\d{0,15}:[A-Za-z0-9_-]{10,100}")
_MAX_CALLS: Final = 200_000


class FakeTelegram:
    """A fake Telegram for tests and demos.

    Any well-formed token creates a bot at its first use. With ``known_only``, tokens that were not
    passed to ``bot`` get 401, as from the real server. ``local`` allows webhooks at any address, as
    a self-hosted Bot API server does. ``flooding`` limits messages; without it only injected faults
    cause a 429.
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
        self.calls: deque[tuple[int, ReceivedCall]] = deque(maxlen=_MAX_CALLS)
        self.faults: list[Fault] = []
        self._entropy = entropy
        self._known_only = known_only
        self._flooding = flooding
        self._answer_within_s = answer_within_s
        self._client: httpx2.AsyncClient | None = None
        self._queries = 0
        self.methods: dict[str, Method] = {
            **PROFILE,
            **Receiving(clock, self._start_delivery, local=local).methods,
            **Sending(clock).methods,
        }

    # ------------------------------------------------------------------ bots

    def bot(self, token: str, *, name: str = "", username: str = "") -> FakeBot:
        """The bot of a token; created if there is none."""
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

    def authenticate(self, token: str) -> FakeBot:
        """The bot of a request's token; raises a 401 Refusal for an unknown token."""
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
        """Send a message to the bot as a user. The id of the update, 0 if the bot excludes it.

        A positive chat id is a private chat. ``more`` are further fields of the message, for
        example a photo (then the text may be empty).
        """
        conversation = user_actions.open_chat(bot, chat, name)
        sender = user_actions.user_object(user if user is not None else abs(chat), name)
        message = user_actions.user_message(bot, conversation, sender, text, self.clock.now(), more)
        return self.push(bot, "message", message)

    def post(self, bot: FakeBot, text: str, *, channel: int = -1_002_000_000_000) -> int:
        """Post a text in a channel that the bot reads."""
        conversation = bot.chats.get(channel)
        if conversation is None:
            about = {"id": channel, "type": "channel", "title": "News", "username": "fake_news"}
            conversation = bot.chats[channel] = Chat(about)
        now = self.clock.now()
        message = user_actions.user_message(
            bot,
            conversation,
            user_actions.user_object(1),
            text,
            now,
            {"sender_chat": conversation.about},
        )
        del message["from"]
        return self.push(bot, "channel_post", message)

    def edit(self, bot: FakeBot, message_id: int, text: str, *, chat: int = 7) -> int:
        """Edit a message as its user."""
        conversation = user_actions.open_chat(bot, chat)
        message = user_actions.edit_message(conversation, message_id, text, self.clock.now())
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
        """Press a button under a message of the bot."""
        self._queries += 1
        sender = user_actions.user_object(user if user is not None else abs(chat))
        query = f"{bot.id}{self._queries:06d}"
        conversation, now = user_actions.open_chat(bot, chat), self.clock.now()
        body = user_actions.press_button(bot, conversation, sender, message_id, data, now, query)
        return self.push(bot, "callback_query", body)

    def block(self, bot: FakeBot, *, chat: int = 7, blocked: bool = True) -> int:
        """Block or unblock the bot: while blocked, its messages are refused."""
        conversation, sender = (
            user_actions.open_chat(bot, chat),
            user_actions.user_object(abs(chat)),
        )
        body = user_actions.member_update(
            bot, conversation, sender, self.clock.now(), blocked=blocked
        )
        return self.push(bot, "my_chat_member", body)

    def ask_inline(self, bot: FakeBot, text: str, *, user: int = 7) -> int:
        """Send an inline query to the bot."""
        self._queries += 1
        body = {
            "id": f"{bot.id}{self._queries:06d}",
            "from": user_actions.user_object(user),
            "query": text,
            "offset": "",
            "chat_type": "private",
        }
        return self.push(bot, "inline_query", body)

    def react(self, bot: FakeBot, message_id: int, emoji: str, *, chat: int = 7) -> int:
        """React to a message as a user."""
        conversation = user_actions.open_chat(bot, chat)
        now = self.clock.now()
        conversation.add(now, "user", "reaction", {"message_id": message_id, "emoji": emoji})
        body = {
            "chat": conversation.about,
            "message_id": message_id,
            "user": user_actions.user_object(abs(chat)),
            "date": now // 1_000_000,
            "old_reaction": [],
            "new_reaction": [{"type": "emoji", "emoji": emoji}],
        }
        return self.push(bot, "message_reaction", body)

    def push(self, bot: FakeBot, kind: str, body: dict[str, Any]) -> int:
        """Create an update of any kind with any content; 0 if the bot excludes that kind."""
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is not a kind of update")
        if not is_wanted(kind, bot.allowed):
            return 0
        update = new_update(bot.next_update, kind, body, self.clock.now())
        bot.next_update += 1
        bot.waiting[update.id] = update
        if bot.delivery is not None:
            bot.delivery.enqueue(update)
        wake_get_updates(bot)
        return update.id

    # ------------------------------------------------------------------ methods

    async def perform(
        self, bot: FakeBot, method: str, given: CallParameters, *, way: str = "http"
    ) -> Any:
        """Run a method and return its result. Raises Refusal where Telegram would refuse."""
        call = ReceivedCall(method, given.values, way)
        self.calls.append((bot.id, call))
        found = self.methods.get(method.lower())
        if found is None:
            raise Refusal(404, "Not Found: method not found")
        if self._flooding is not None and method.lower() == "sendmessage":
            wait_s = self._flooding.wait_s(bot.id, given.text("chat_id"), self.clock)
            if wait_s:
                raise too_many_requests(wait_s)
        return await found(bot, given, call)

    def fault_for(self, bot: FakeBot, method: str) -> Fault | None:
        """Consume and return the injected fault for this call, if any."""
        for fault in self.faults:
            if fault.matches(bot.id, method):
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
        """End deliveries and getUpdates calls."""
        for bot in self.bots.values():
            wake_get_updates(bot)
            if bot.delivery is not None:
                bot.delivery.close()
                await bot.delivery.closed()
                bot.delivery = None
        if self._client is not None:
            await self._client.aclose()
            self._client = None
