"""The tasks of one bot: its updates, its outgoing calls, and the notice when an update died.

An update that is done and the calls that answer it are committed together, so that a crash repeats
the handler or nothing, and never an answer. An update that dies and the job that tells its chat
are committed together, too.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from forge_jobs import Context, Dead, DeadJob, Failed, Forge, Job, JobOutcome, Retry, Throttled

from .backlog import Backlog
from .breaker import Breaker
from .calls import Call, cut, message
from .config import Bot, Ordering
from .flood import BOT_RATE, scope_of
from .handlers.command import CommandHandler
from .handlers.contract import Handler
from .masking import Mask
from .sending import Outgoing
from .update import Update, unpacked

_LOG: Final = logging.getLogger("telegram_gateway.queue")
MAX_PAYLOAD: Final = 2 << 20
# Counted from the end of an update; Telegram repeats one for 24 hours at most. A job is kept at
# least as long as its key.
DEDUPE_S: Final = 48 * 3_600
# The whole chat waits behind a message that is tried again, so it is given up after some minutes.
# Only what is the message's own fault counts here: while Telegram is away nothing is tried in vain.
_SEND_STEPS: Final = ("1s", "5s", "15s", "30s")
# A crash of the process counts, too, and a gateway that is started again and again must not lose
# the messages it was sending.
_SEND_ATTEMPTS: Final = 20
_AHEAD: Final = -10
_REFERENCE: Final = 8


class BotQueue:
    """Stores what a bot has to do; workers do it."""

    def __init__(
        self,
        forge: Forge,
        bot: Bot,
        handler: Handler,
        outgoing: Outgoing,
        mask: Mask,
        *,
        stuck_s: float,
    ) -> None:
        self.bot = bot
        self.breaker = Breaker(forge.clock)
        self.depth = Backlog(forge, bot)
        self._stuck_s = stuck_s
        self._handler = handler
        self._outgoing = outgoing
        self._mask = mask
        self._send = self._send_task(forge)
        self._update = self._update_task(forge) if bot.in_queue else None

    # ------------------------------------------------------------------ in

    async def take_in(self, update: Update) -> Job[Any]:
        """Store an update durably; ``duplicate`` says that it was there already."""
        bot = self.bot
        if self._update is None:
            raise RuntimeError(f"bot {bot.slug} has no queue")
        tags = [f"bot:{bot.slug}", f"update:{update.id}"]
        if update.chat_id is not None:
            tags.append(f"chat:{update.chat_id}")
        if update.user_id not in (None, update.chat_id):
            tags.append(f"user:{update.user_id}")
        options: dict[str, Any] = {
            "dedupe_key": f"telegram:{bot.id}:{update.id}",
            "dedupe_for": DEDUPE_S,
            "expires": self._use_ends(update),
            "tags": tags,
        }
        words = update.words if bot.overtaking else []
        if words and words[0] in bot.overtaking:
            options["priority"] = _AHEAD
        elif update.lane is not None and bot.ordering is not Ordering.NONE:
            options |= {"lane": f"in:{bot.id}:{update.lane}", "order": str(bot.ordering)}
        return await self._update.using(**options).aenqueue(update.packed())

    def _use_ends(self, update: Update) -> datetime | int:
        if update.date is None:
            return update.life_s
        return datetime.fromtimestamp(update.date, UTC) + timedelta(seconds=update.life_s)

    # ------------------------------------------------------------------ out

    def sendable(self, call: Call, *, key: str | None = None, **options: Any) -> Any:
        """The send task with the options of this call: calls to one chat keep their order."""
        options["tags"] = [f"bot:{self.bot.slug}"]
        if key is not None:
            options["dedupe_key"] = key
        if call.chat_id is not None:
            options["tags"].append(f"chat:{call.chat_id}".replace(",", " "))
            options |= {"lane": f"out:{self.bot.id}:{call.chat_id}", "order": "strict"}
        return self._send.using(**options)

    def carry(self, ctx: Context, calls: Sequence[Call], *, quiet: bool = False) -> None:
        """Send these if and when the present job is done."""
        for place, call in enumerate(calls):
            task = self.sendable(call, key=f"send:{ctx.job.id}:{place}")
            ctx.on_done(task, call.method, call.parameters, quiet)

    # ------------------------------------------------------------------ tasks

    def _send_task(self, forge: Forge) -> Any:
        outgoing, slug = self._outgoing, self.bot.slug
        scope = scope_of(slug)
        forge.rate_limit(scope, BOT_RATE)

        @forge.task(
            kind=f"send.{slug}",
            queue=self.bot.sends_queue,
            max_attempts=_SEND_ATTEMPTS,
            retry=Retry(delays=_SEND_STEPS),
            timeout="2m",
            scopes=[scope],
        )
        async def send(method: str, parameters: dict[str, Any], quiet: bool, ctx: Context) -> None:
            try:
                await outgoing.send(Call(method, parameters), lambda: ctx.rate_limit.acquire(scope))
            except Dead as error:
                if not quiet:
                    raise
                _LOG.info("bot %s: a notice could not be sent: %s", slug, error.message)

        return send

    def _notice_task(self, forge: Forge) -> Any:
        @forge.task(
            kind=f"notice.{self.bot.slug}", queue=self.bot.sends_queue, payload_limit=MAX_PAYLOAD
        )
        async def notice(job: DeadJob, ctx: Context) -> None:
            update = unpacked(str(job.payload["raw"]))
            chat = update.chat_id if update.chat_id is not None else update.user_id
            if chat is None:
                return
            text = self.bot.dead_message.replace("{reference}", job.id[-_REFERENCE:])
            self.carry(ctx, [message(chat, cut(text), thread_id=update.thread_id)], quiet=True)

        return notice

    def _update_task(self, forge: Forge) -> Any:
        bot = self.bot
        options: dict[str, Any] = {}
        if bot.notify_on_dead:
            options["on_dead"] = self._notice_task(forge)

        # The handler is part of the kind: after a change of handler, updates of the old one wait.
        @forge.task(
            kind=f"update.{bot.handler}.{bot.slug}",
            queue=bot.updates_queue,
            max_attempts=bot.max_attempts,
            retry=Retry(delays=bot.backoff_s),
            timeout=self._stuck_s,
            payload_limit=MAX_PAYLOAD,
            **options,
        )
        async def update(raw: str, ctx: Context) -> None:
            self.carry(ctx, await self._answered(unpacked(raw), ctx))

        return update

    async def _answered(self, update: Update, ctx: Context) -> list[Call]:
        wait_s = self.breaker.admit()
        if wait_s > 0:
            raise Throttled(wait_s)
        try:
            if isinstance(self._handler, CommandHandler):
                calls = await self._handler.answer_in(ctx, update)
            else:
                calls = await self._handler.answer(update, ctx.job.attempts)
        except Failed as error:
            self.breaker.failed()
            wait = error.retry_after_s or None
            raise Failed(self._mask(error.message), retry_after=wait) from None
        except Dead as error:
            self.breaker.worked()
            raise Dead(self._mask(error.message)) from None
        except JobOutcome:
            raise
        except Exception as error:
            # Its text may hold an address with a token in it.
            raise Failed(self._mask(f"{type(error).__name__}: {error}")) from None
        self.breaker.worked()
        return calls


class QueuedReply:
    """A reply of the auth handler that goes through the queue."""

    def __init__(self, queue: BotQueue, call: Call) -> None:
        self._queue = queue
        self._call = call

    def enqueue_in(self, tx: object) -> None:
        task = self._queue.sendable(self._call, tx=tx)
        task.enqueue(self._call.method, self._call.parameters, False)

    async def aenqueue_in(self, tx: object) -> None:
        task = self._queue.sendable(self._call, tx=tx)
        await task.aenqueue(self._call.method, self._call.parameters, False)

    async def aenqueue(self) -> None:
        task = self._queue.sendable(self._call)
        await task.aenqueue(self._call.method, self._call.parameters, False)


class DirectReply:
    """A reply of the auth handler without a queue: sent at once, as well as it can be."""

    def __init__(self, outgoing: Outgoing, call: Call) -> None:
        self._outgoing = outgoing
        self._call = call

    def enqueue_in(self, tx: object) -> None:
        raise RuntimeError("a gateway without a database has no transactions")

    async def aenqueue_in(self, tx: object) -> None:
        await self.aenqueue()

    async def aenqueue(self) -> None:
        try:
            await self._outgoing.send_now(self._call)
        except JobOutcome as error:
            _LOG.warning("a reply could not be sent: %s", error)
