"""The tasks of one bot: its updates, its outgoing calls, and the notice about a dead update.

The finish of an update and the jobs for its outgoing calls are one transaction, so a crash repeats
the handler or nothing, and never a reply. The death of an update and the job that notifies its chat
are one transaction, too.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from forge_jobs import Context, Dead, DeadJob, Failed, Forge, Job, JobOutcome, Retry, Throttled

from .backlog import Backlog
from .breaker import Breaker
from .calls import Call, message, truncate_text
from .config import Bot, Ordering
from .flood import BOT_RATE, scope_of
from .handlers.command import CommandHandler
from .handlers.contract import Handler
from .masking import Mask
from .sending import Outgoing
from .update import Update, update_from_base64

_LOG: Final = logging.getLogger("telegram_gateway.queue")
MAX_PAYLOAD: Final = 2 << 20
# Counted from the finish of an update's job. Telegram redelivers an update for at most 24 hours. A
# job is retained at least as long as its dedupe key.
DEDUPE_S: Final = 48 * 3_600
# A retried message blocks its whole chat, so it is given up after some minutes. Only failures of
# the message itself count: while Telegram is unavailable, no attempt is spent.
_SEND_STEPS: Final = ("1s", "5s", "15s", "30s")
# A crash of the process spends an attempt, too, and a gateway that restarts repeatedly must not
# lose the messages it was sending.
_SEND_ATTEMPTS: Final = 20
_OVERTAKING_PRIORITY: Final = -10
_REFERENCE_LENGTH: Final = 8


class BotQueue:
    """Enqueues the updates and outgoing calls of one bot, and defines the tasks that run them."""

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
        self.backlog = Backlog(forge, bot)
        self._stuck_s = stuck_s
        self._handler = handler
        self._outgoing = outgoing
        self._mask = mask
        self._send = self._send_task(forge)
        self._update = self._update_task(forge) if bot.in_queue else None

    # ------------------------------------------------------------------ in

    async def enqueue_update(self, update: Update) -> Job[Any]:
        """Store an update durably. ``duplicate`` of the result: it was stored before."""
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
            "expires": self._expires_at(update),
            "tags": tags,
        }
        words = update.words if bot.overtaking else []
        if words and words[0] in bot.overtaking:
            options["priority"] = _OVERTAKING_PRIORITY
        elif update.lane is not None and bot.ordering is not Ordering.NONE:
            options |= {"lane": f"in:{bot.id}:{update.lane}", "order": str(bot.ordering)}
        return await self._update.using(**options).aenqueue(update.to_base64())

    def _expires_at(self, update: Update) -> datetime | int:
        if update.date is None:
            return update.lifetime_s
        return datetime.fromtimestamp(update.date, UTC) + timedelta(seconds=update.lifetime_s)

    # ------------------------------------------------------------------ out

    def send_task_for(self, call: Call, *, key: str | None = None, **options: Any) -> Any:
        """The send task with the options for this call. Calls to one chat share a strict lane."""
        options["tags"] = [f"bot:{self.bot.slug}"]
        if key is not None:
            options["dedupe_key"] = key
        if call.chat_id is not None:
            options["tags"].append(f"chat:{call.chat_id}".replace(",", " "))
            options |= {"lane": f"out:{self.bot.id}:{call.chat_id}", "order": "strict"}
        return self._send.using(**options)

    def enqueue_on_done(self, ctx: Context, calls: Sequence[Call], *, quiet: bool = False) -> None:
        """Enqueue these calls as successors: they are stored in the transaction of the finish."""
        for index, call in enumerate(calls):
            task = self.send_task_for(call, key=f"send:{ctx.job.id}:{index}")
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
            update = update_from_base64(str(job.payload["raw"]))
            chat = update.chat_id if update.chat_id is not None else update.user_id
            if chat is None:
                return
            text = self.bot.dead_message.replace("{reference}", job.id[-_REFERENCE_LENGTH:])
            self.enqueue_on_done(
                ctx, [message(chat, truncate_text(text), thread_id=update.thread_id)], quiet=True
            )

        return notice

    def _update_task(self, forge: Forge) -> Any:
        bot = self.bot
        options: dict[str, Any] = {}
        if bot.notify_on_dead:
            options["on_dead"] = self._notice_task(forge)

        # The handler's name is part of the kind: updates for a former handler are not run by the
        # new one.
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
            self.enqueue_on_done(ctx, await self._run_handler(update_from_base64(raw), ctx))

        return update

    async def _run_handler(self, update: Update, ctx: Context) -> list[Call]:
        wait_s = self.breaker.acquire_wait_s()
        if wait_s > 0:
            raise Throttled(wait_s)
        try:
            if isinstance(self._handler, CommandHandler):
                calls = await self._handler.answer_in_job(ctx, update)
            else:
                calls = await self._handler.answer(update, ctx.job.attempts)
        except Failed as error:
            self.breaker.record_failure()
            wait = error.retry_after_s or None
            raise Failed(self._mask(error.message), retry_after=wait) from None
        except Dead as error:
            self.breaker.record_success()
            raise Dead(self._mask(error.message)) from None
        except JobOutcome:
            raise
        except Exception as error:
            # Its text may contain a URL with a token.
            raise Failed(self._mask(f"{type(error).__name__}: {error}")) from None
        self.breaker.record_success()
        return calls


class QueuedReply:
    """A reply of the auth handler that is enqueued as a job."""

    def __init__(self, queue: BotQueue, call: Call) -> None:
        self._queue = queue
        self._call = call

    def enqueue_in(self, tx: object) -> None:
        task = self._queue.send_task_for(self._call, tx=tx)
        task.enqueue(self._call.method, self._call.parameters, False)

    async def aenqueue_in(self, tx: object) -> None:
        task = self._queue.send_task_for(self._call, tx=tx)
        await task.aenqueue(self._call.method, self._call.parameters, False)

    async def aenqueue(self) -> None:
        task = self._queue.send_task_for(self._call)
        await task.aenqueue(self._call.method, self._call.parameters, False)


class DirectReply:
    """A reply of the auth handler without a queue: sent immediately, best effort."""

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
