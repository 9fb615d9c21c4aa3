"""The command handler: a warm program in any language answers the update.

It speaks the worker-pool protocol of forge_jobs; its payload is ``{"update": …, "bot": …,
"attempt": …}`` and its result is what the http handler takes as an answer.
"""

from typing import Any

import msgspec

from forge_jobs import Context, Dead, Done, Failed, JobOutcome, WorkerPoolHandler
from telegram_gateway.calls import Call
from telegram_gateway.config import Bot, CommandPlan
from telegram_gateway.update import Update

from .answers import calls_of


class CommandHandler:
    """Needs the context of a job, so it answers in the queue only."""

    def __init__(self, bot: Bot, plan: CommandPlan) -> None:
        self._bot = bot
        self._pool = WorkerPoolHandler(
            argv=plan.argv,
            kind=f"command.{bot.slug}",
            size=plan.size,
            timeout_secs=plan.timeout_s,
            inherit_env=False,
        )

    async def answer_in(self, ctx: Context, update: Update) -> list[Call]:
        """What the program says about the update."""
        try:
            content: Any = msgspec.json.decode(update.raw)
        except msgspec.MsgspecError:
            raise Dead("the update is no JSON") from None
        payload = {"update": content, "bot": self._bot.slug, "attempt": ctx.job.attempts}
        outcome: JobOutcome = await self._pool.run(ctx, payload)
        if isinstance(outcome, Done):
            return calls_of(outcome.value, update)
        raise outcome

    async def answer(self, update: Update, attempt: int) -> list[Call]:
        raise Failed("the command handler answers in the queue only")

    async def close(self) -> None:
        return
