"""Delivers updates to a webhook by Telegram's rules.

One lane per chat (or per user, for queries), one delivery in flight per lane, lanes in parallel up
to ``max_connections``. A failed delivery is retried immediately, then after 2, 4, 8 … seconds up to
one or two minutes, or after Retry-After; its lane waits meanwhile. Expired updates are dropped.
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
from .updates import SECOND, PendingUpdate
from .world import FakeBot, WebhookSettings

SECRET_HEADER: Final = "X-Telegram-Bot-Api-Secret-Token"
MAX_RETRY_AFTER_S: Final = 3_600
MAX_PAUSE_S: Final = 60
GONE_AFTER_S: Final = 23 * 3_600
_NOT_IN_RESPONSES: Final = frozenset({"setwebhook", "deletewebhook", "close", "logout"})
Perform = Callable[[str, CallParameters], Awaitable[object]]


@dataclass(slots=True)
class _LaneHead:
    """The first update of a lane, with its retry state."""

    update: PendingUpdate
    due: float = 0.0
    delay_s: float = 1.0
    fails: int = 0


class Delivery:
    """Delivers the updates of one bot to one webhook until closed."""

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
        self._lanes: dict[str, deque[_LaneHead]] = {}
        self._ready: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._under_way: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        for update in bot.waiting.values():
            self.enqueue(update)
        self._running = asyncio.create_task(self._run(), name=f"deliver to bot {bot.id}")

    def enqueue(self, update: PendingUpdate) -> None:
        """Append an update to its lane."""
        lane = self._lanes.setdefault(update.lane, deque())
        lane.append(_LaneHead(update, due=self._clock.mono()))
        if len(lane) == 1:
            self._schedule(update.lane)

    @property
    def under_way(self) -> int:
        """How many deliveries are in flight."""
        return len(self._under_way)

    def close(self) -> None:
        """Stop; unconfirmed updates stay pending."""
        for task in (self._running, *self._under_way):
            task.cancel()

    async def closed(self) -> None:
        """Wait until no delivery is in flight."""
        await asyncio.gather(self._running, *self._under_way, return_exceptions=True)

    # ------------------------------------------------------------------ the loop

    def _schedule(self, lane: str) -> None:
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
            task.add_done_callback(self._on_delivery_done)

    def _on_delivery_done(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self._wake.set()

    async def _pause(self, due: float | None) -> None:
        """Wait for a change, at most until ``due``."""
        waking = asyncio.ensure_future(self._wake.wait())
        sleeping = None if due is None else asyncio.ensure_future(self._sleep(due))
        waits = {waking} if sleeping is None else {waking, sleeping}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _sleep(self, due: float) -> None:
        # Computed here and not by the caller: the clock may leap in between.
        await self._clock.sleep(due - self._clock.mono())

    # ------------------------------------------------------------------ one update

    async def _deliver(self, lane: str) -> None:
        head = self._lanes[lane][0]
        if head.update.id not in self._bot.waiting:
            self._advance(lane)
            return
        if head.update.expires < self._clock.now():
            self._bot.finish_update(head.update, delivered=False)
            self._advance(lane)
            return
        answer = await self._post(head.update)
        if isinstance(answer, httpx2.Response) and answer.is_success:
            self._webhook.gone_since = None
            self._bot.finish_update(head.update, delivered=True)
            self._advance(lane)
            await self._run_returned_call(answer)
        elif isinstance(answer, httpx2.Response):
            reason = f"{answer.status_code} {answer.reason_phrase}".strip()
            self._record_error(f"Wrong response from the webhook: {reason}")
            self._retry_later(lane, head, _retry_after_s(answer))
            self._track_gone(answer.status_code)
        else:
            self._record_error(answer)
            self._retry_later(lane, head, 0)

    async def _post(self, update: PendingUpdate) -> httpx2.Response | str:
        """The response, or why there is none."""
        headers = {"content-type": "application/json", "accept-encoding": "gzip, deflate"}
        if self._webhook.secret:
            headers[SECRET_HEADER] = self._webhook.secret
        post = self._client.post(self._webhook.url, content=update.encoded(), headers=headers)
        request = asyncio.ensure_future(post)
        timeout = asyncio.ensure_future(self._clock.sleep(self._answer_within_s))
        try:
            await asyncio.wait({request, timeout}, return_when=asyncio.FIRST_COMPLETED)
            if not request.done():
                return "Read timeout expired"
            return request.result()
        except httpx2.ConnectError:
            return "Connection refused"
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, RuntimeError):
            return "Webhook connection closed"
        finally:
            timeout.cancel()
            request.cancel()

    async def _run_returned_call(self, answer: httpx2.Response) -> None:
        """Run the method call that a response may contain; its result is discarded."""
        kind = answer.headers.get("content-type", "")
        try:
            given = read_call_parameters("", kind, answer.content)
            method = given.text("method")
            refused = method.lower() in _NOT_IN_RESPONSES or method.lower().startswith("get")
            if method and not refused:
                del given.values["method"]
                await self._perform(method, given)
        except Refusal:
            return

    def _advance(self, lane: str) -> None:
        heads = self._lanes[lane]
        heads.popleft()
        if heads:
            self._schedule(lane)
        else:
            del self._lanes[lane]

    def _retry_later(self, lane: str, head: _LaneHead, retry_after_s: int) -> None:
        pause_s = float(retry_after_s)
        if not retry_after_s and head.fails:
            max_pause_s = MAX_PAUSE_S * (1 + self._entropy.roll())
            head.delay_s = pause_s = min(max_pause_s, head.delay_s * 2)
        if self._clock.now() + pause_s * SECOND > head.update.expires:
            self._bot.finish_update(head.update, delivered=False)
            self._advance(lane)
            return
        head.fails += 1
        head.due = self._clock.mono() + pause_s
        self._schedule(lane)

    def _record_error(self, why: str) -> None:
        self._webhook.last_error = why
        self._webhook.last_error_at = self._clock.now() // SECOND

    def _track_gone(self, status: int) -> None:
        """Remove the webhook after 23 hours of 410 responses."""
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
