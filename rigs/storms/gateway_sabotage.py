"""Sabotages of the gateway, each breaking one guarantee, which the storm's checks must detect."""

import asyncio
from types import SimpleNamespace
from typing import Any

from telegram_gateway.config import Ordering
from telegram_gateway.handlers.echo import Echo
from telegram_gateway.queueing import BotQueue
from telegram_gateway.update_receiver import ReceiveStatus, UpdateReceiver


def _acknowledge_early() -> None:
    """Respond 200 before storing: a crash in between loses the update."""
    original = UpdateReceiver.receive
    later: set[asyncio.Task[ReceiveStatus]] = set()

    async def receive(self: UpdateReceiver, runtime: Any, body: bytes) -> ReceiveStatus:
        async def at_leisure() -> ReceiveStatus:
            await asyncio.sleep(0.2)
            return await original(self, runtime, body)

        later.add(asyncio.create_task(at_leisure()))
        return ReceiveStatus.ACCEPTED

    UpdateReceiver.receive = receive


def _ignore_lanes() -> None:
    """Run updates of one chat in parallel; the second one is answered first."""
    original = Echo.answer
    overtaken = asyncio.Event()
    seen: list[int] = []

    async def answer(self: Echo, update: Any, attempt: int) -> Any:
        seen.append(update.id)
        if len(seen) == 1:
            await overtaken.wait()
            await asyncio.sleep(0.5)
        else:
            overtaken.set()
        return await original(self, update, attempt)

    taken: Any = BotQueue.enqueue_update

    async def enqueue_update(self: Any, update: Any) -> Any:
        object.__setattr__(self.bot, "ordering", Ordering.NONE)
        return await taken(self, update)

    Echo.answer = answer
    BotQueue.enqueue_update = enqueue_update


def _ignore_dedupe_keys() -> None:
    """Store a redelivered update again."""
    original: Any = BotQueue._update_task

    class Keyless:
        def __init__(self, task: Any) -> None:
            self._task = task

        def using(self, *, dedupe_key: str, dedupe_for: float, **options: Any) -> Any:
            return self._task.using(**options)

    def update_task(self: Any, kind: str, notice: Any) -> Any:
        return Keyless(original(self, kind, notice))

    BotQueue._update_task = update_task


def _send_in_the_handler() -> None:
    """Send the message before the finish of the update is stored."""

    original: Any = BotQueue.__init__

    def init(
        self: Any, forge: Any, bot: Any, run: Any, outgoing: Any, *more: Any, **options: Any
    ) -> None:
        original(self, forge, bot, run, outgoing, *more, **options)

        async def answered(update: Any, ctx: Any) -> list[Any]:
            for call in await run.run(update, ctx):
                await outgoing.send_now(call)
            return []

        self.run = SimpleNamespace(run=answered)

    BotQueue.__init__ = init


SABOTAGES = {
    "early": _acknowledge_early,
    "unordered": _ignore_lanes,
    "keyless": _ignore_dedupe_keys,
    "inside": _send_in_the_handler,
}
