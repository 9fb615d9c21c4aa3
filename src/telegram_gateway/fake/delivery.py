"""Telegram's side of a webhook: who gets which update when, and what an answer leads to.

One lane per chat (or per user, for queries), one update under way per lane, lanes side by side up
to ``max_connections``. A failure is repeated at once, then after 2, 4, 8 … seconds up to one or
two minutes, or when Retry-After says; meanwhile its lane waits. What outlived its use is dropped.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import httpx2

from forge_jobs import Clock, Entropy

from .call_parameters import CallParameters, read_call_parameters
from .refusal import Refusal
from .updates import SECOND, Waiting
from .world import FakeBot, WebhookSettings

SECRET_HEADER: Final = "X-Telegram-Bot-Api-Secret-Token"
MAX_RETRY_AFTER_S: Final = 3_600
MAX_PAUSE_S: Final = 60
GONE_AFTER_S: Final = 23 * 3_600
_NEVER_IN_ANSWERS: Final = frozenset({"setwebhook", "deletewebhook", "close", "logout"})
Perform = Callable[[str, CallParameters], Awaitable[object]]


@dataclass(slots=True)
class _Head:
    """The first update of a lane, with what its failures led to."""

    update: Waiting
    due: float = 0.0
    delay_s: float = 1.0
    fails: int = 0


class Delivery:
    """Delivers the updates of one bot to one webhook, until it is closed."""

    def __init__(
        self,
        bot: FakeBot,
        webhook: WebhookSettings,
        *,
        clock: Clock,
        entropy: Entropy,
        client: httpx2.AsyncClient,
        perform: Perform,
        gone: Callable[[], None],
        answer_within_s: float,
    ) -> None:
        self._bot = bot
        self._webhook = webhook
        self._clock = clock
        self._entropy = entropy
        self._client = client
        self._perform = perform
        self._gone = gone
        self._answer_within_s = answer_within_s
        self._lanes: dict[str, deque[_Head]] = {}
        self._ready: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._under_way: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        for update in bot.waiting.values():
            self.offer(update)
        self._running = asyncio.create_task(self._run(), name=f"deliver to bot {bot.id}")

    def offer(self, update: Waiting) -> None:
        """Put an update at the end of its lane."""
        lane = self._lanes.setdefault(update.lane, deque())
        lane.append(_Head(update, due=self._clock.mono()))
        if len(lane) == 1:
            self._line_up(update.lane)

    @property
    def under_way(self) -> int:
        """How many updates are with the bot, their answers not yet here."""
        return len(self._under_way)

    def close(self) -> None:
        """Stop; what was not confirmed keeps waiting."""
        for task in (self._running, *self._under_way):
            task.cancel()

    async def closed(self) -> None:
        """Wait until nothing is under way any more."""
        await asyncio.gather(self._running, *self._under_way, return_exceptions=True)

    # ------------------------------------------------------------------ the loop

    def _line_up(self, lane: str) -> None:
        heapq.heappush(self._ready, (self._lanes[lane][0].due, next(self._order), lane))
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            self._start_due()
            full = len(self._under_way) >= self._webhook.connections
            await self._pause(None if full or not self._ready else self._ready[0][0])

    def _start_due(self) -> None:
        while self._ready and len(self._under_way) < self._webhook.connections:
            due, _, lane = self._ready[0]
            if due > self._clock.mono():
                return
            heapq.heappop(self._ready)
            task = asyncio.create_task(self._deliver(lane))
            self._under_way.add(task)
            task.add_done_callback(self._one_ended)

    def _one_ended(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self._wake.set()

    async def _pause(self, due: float | None) -> None:
        """Until something changes, or until then."""
        woken = asyncio.ensure_future(self._wake.wait())
        slept = None if due is None else asyncio.ensure_future(self._sleep(due))
        both = {woken} if slept is None else {woken, slept}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in both:
                one.cancel()

    async def _sleep(self, due: float) -> None:
        # Reckoned here and not by the caller: the clock may leap between the two.
        await self._clock.sleep(due - self._clock.mono())

    # ------------------------------------------------------------------ one update

    async def _deliver(self, lane: str) -> None:
        head = self._lanes[lane][0]
        if head.update.id not in self._bot.waiting:
            self._next_in(lane)
            return
        if head.update.expires < self._clock.now():
            self._bot.ended(head.update, delivered=False)
            self._next_in(lane)
            return
        answer = await self._posted(head.update)
        if isinstance(answer, httpx2.Response) and answer.is_success:
            self._webhook.gone_since = None
            self._bot.ended(head.update, delivered=True)
            self._next_in(lane)
            await self._answered(answer)
        elif isinstance(answer, httpx2.Response):
            reason = f"{answer.status_code} {answer.reason_phrase}".strip()
            self._failed(f"Wrong response from the webhook: {reason}")
            self._later(lane, head, _retry_after_s(answer))
            self._note_gone(answer.status_code)
        else:
            self._failed(answer)
            self._later(lane, head, 0)

    async def _posted(self, update: Waiting) -> httpx2.Response | str:
        """The answer, or why there is none."""
        headers = {"content-type": "application/json", "accept-encoding": "gzip, deflate"}
        if self._webhook.secret:
            headers[SECRET_HEADER] = self._webhook.secret
        post = self._client.post(self._webhook.url, content=update.encoded(), headers=headers)
        asked = asyncio.ensure_future(post)
        patience = asyncio.ensure_future(self._clock.sleep(self._answer_within_s))
        try:
            await asyncio.wait({asked, patience}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                return "Read timeout expired"
            return asked.result()
        except httpx2.ConnectError:
            return "Connection refused"
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, RuntimeError):
            return "Webhook connection closed"
        finally:
            patience.cancel()
            asked.cancel()

    async def _answered(self, answer: httpx2.Response) -> None:
        """The answer may hold one call; nobody learns what came of it."""
        kind = answer.headers.get("content-type", "")
        try:
            given = read_call_parameters("", kind, answer.content)
            method = given.text("method")
            refused = method.lower() in _NEVER_IN_ANSWERS or method.lower().startswith("get")
            if method and not refused:
                del given.values["method"]
                await self._perform(method, given)
        except Refusal:
            return

    def _next_in(self, lane: str) -> None:
        heads = self._lanes[lane]
        heads.popleft()
        if heads:
            self._line_up(lane)
        else:
            del self._lanes[lane]

    def _later(self, lane: str, head: _Head, retry_after_s: int) -> None:
        pause_s = float(retry_after_s)
        if not retry_after_s and head.fails:
            most_s = MAX_PAUSE_S * (1 + self._entropy.roll())
            head.delay_s = pause_s = min(most_s, head.delay_s * 2)
        if self._clock.now() + pause_s * SECOND > head.update.expires:
            self._bot.ended(head.update, delivered=False)
            self._next_in(lane)
            return
        head.fails += 1
        head.due = self._clock.mono() + pause_s
        self._line_up(lane)

    def _failed(self, why: str) -> None:
        self._webhook.last_error = why
        self._webhook.last_error_at = self._clock.now() // SECOND

    def _note_gone(self, status: int) -> None:
        """Who answers 410 for 23 hours loses the webhook."""
        now = self._clock.mono()
        if status != 410:
            self._webhook.gone_since = None
        elif self._webhook.gone_since is None:
            self._webhook.gone_since = now
        elif now - self._webhook.gone_since > GONE_AFTER_S:
            self._gone()


def _retry_after_s(answer: httpx2.Response) -> int:
    text = answer.headers.get("retry-after", "").strip()
    return min(int(text), MAX_RETRY_AFTER_S) if text.isascii() and text.isdigit() else 0
