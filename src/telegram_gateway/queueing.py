"""The tasks of one bot: its updates, its outgoing calls, and the notice about a dead update.

The finish of an update and the jobs for its outgoing calls are one transaction, so a crash repeats
the handler or nothing, and never a reply. The death of an update and the job that notifies its chat
are one transaction, too.
"""

import logging
import re
from collections.abc import Sequence
from typing import Any, Final

from forge_jobs import Context, Dead, DeadJob, Failed, Forge, Job, JobOutcome, Retry

from .backlog import Backlog
from .calls import Call, reply, truncate_text
from .config import Bot, Ordering
from .flood import BOT_RATE, scope_of
from .reported_jobs import ReportedJobs
from .sending import Outgoing
from .storage import GatewayStore
from .update import Update, update_from_base64
from .update_run import UpdateRun

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
        run: UpdateRun,
        outgoing: Outgoing,
        reported: ReportedJobs,
        *,
        stuck_s: float,
    ) -> None:
        self.bot = bot
        self.run = run
        self.backlog = Backlog(forge, bot)
        self._stuck_s = stuck_s
        self._outgoing = outgoing
        self._reported = reported
        self._forge = forge
        self._send = self._send_task(forge)
        self._update: Any = None

    async def open(self, storage: GatewayStore) -> None:
        """Define the task for updates. Its kind belongs to the bot for good: dedupe keys are unique
        per kind, so a new handler or slug must not change it."""
        bot = self.bot
        if not bot.in_queue or self._update is not None:
            return
        former = await self._former_kinds()
        named = f"update.{bot.handler}.{bot.slug}"
        candidates = [named] if named in former or not former else former
        kinds = await storage.assign_update_kind(bot.id, [*candidates, f"update.{bot.id}"])
        own = kinds[bot.id]
        notice = self._notice_task(self._forge)
        self._update = self._update_task(own, notice)
        for kind in former:
            if kind not in kinds.values():
                # Updates that release 0.1 stored for a former handler are run by this one.
                self._update_task(kind, notice)

    async def _former_kinds(self) -> list[str]:
        """The kinds of this slug's updates that workers have published."""
        store = await self._forge.aready()
        name = re.compile(rf"update\.[a-z]+\.{re.escape(self.bot.slug)}")
        return sorted(kind for kind in await store.queues.kinds() if name.fullmatch(kind))

    # ------------------------------------------------------------------ in

    async def enqueue_update(self, update: Update) -> Job[Any]:
        """Store an update durably. ``duplicate`` of the result: it was stored before."""
        bot = self.bot
        if self._update is None:
            raise RuntimeError(f"the queue of bot {bot.slug} is not open")
        tags = [f"bot:{bot.slug}", f"update:{update.id}"]
        if update.chat_id is not None:
            tags.append(f"chat:{update.chat_id}")
        if update.user_id not in (None, update.chat_id):
            tags.append(f"user:{update.user_id}")
        options: dict[str, Any] = {
            "dedupe_key": f"telegram:{bot.id}:{update.id}",
            "dedupe_for": DEDUPE_S,
            "tags": tags,
        }
        words = update.words if bot.overtaking else []
        if words and words[0] in bot.overtaking:
            options["priority"] = _OVERTAKING_PRIORITY
        elif update.lane is not None and bot.ordering is not Ordering.NONE:
            options |= {"lane": f"in:{bot.id}:{update.lane}", "order": str(bot.ordering)}
        return await self._update.using(**options).aenqueue(update.to_base64())

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
            call = Call(method, parameters)
            try:
                await outgoing.send(call, lambda: ctx.rate_limit.acquire(scope))
            except Dead as error:
                self._log_send_failure(call, ctx, error.message, final=True)
                if not quiet:
                    raise
            except Failed as error:
                self._log_send_failure(call, ctx, error.message)
                raise

        return send

    def _log_send_failure(
        self, call: Call, ctx: Context, error: str, *, final: bool = False
    ) -> None:
        job = ctx.job
        left = "no more attempts" if final or job.attempts >= job.max_attempts else "to be retried"
        _LOG.warning(
            "bot %s: %s to chat %s: attempt %d of %d failed, %s: %s (job %s)",
            self.bot.slug, call.method, call.chat_id, job.attempts, job.max_attempts, left, error,
            job.id,
            extra={"bot": self.bot.slug, "chat_id": call.chat_id, "job_id": job.id, "error": error},
        )  # fmt: skip
        self._reported.add(job.id)

    def _notice_task(self, forge: Forge) -> Any:
        bot = self.bot

        @forge.task(kind=f"notice.{bot.slug}", queue=bot.sends_queue, payload_limit=MAX_PAYLOAD)
        async def notice(job: DeadJob, ctx: Context) -> None:
            update = update_from_base64(str(job.payload["raw"]))
            text = bot.dead_message.replace("{reference}", job.id[-_REFERENCE_LENGTH:])
            answer = reply(update, truncate_text(text)) if bot.notify_on_dead else None
            _LOG.error(
                "bot %s: %s is dead after %d attempts, %s: %s (job %s)",
                bot.slug, update.label, job.attempts,
                "nobody is told" if answer is None else "its chat is told", job.error, job.id,
                extra={"bot": bot.slug, "update_id": update.id, "chat_id": update.chat_id,
                       "job_id": job.id, "error": job.error},
            )  # fmt: skip
            if answer is not None:
                self.enqueue_on_done(ctx, [answer], quiet=True)

        return notice

    def _update_task(self, kind: str, notice: Any) -> Any:
        bot = self.bot

        @self._forge.task(
            kind=kind,
            queue=bot.updates_queue,
            max_attempts=bot.max_attempts,
            retry=Retry(delays=bot.backoff_s),
            timeout=self._stuck_s,
            payload_limit=MAX_PAYLOAD,
            on_dead=notice,
        )
        async def update(raw: str, ctx: Context) -> None:
            self.enqueue_on_done(ctx, await self.run.run(update_from_base64(raw), ctx))

        return update


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
