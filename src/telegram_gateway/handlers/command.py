"""The command handler: a pool of long-running programs, in any language, handles the updates.

They use the worker-pool protocol of forge_jobs. The payload is ``{"update": …, "bot": …,
"attempt": …}``; the result has the format of the http handler's answer.
"""

from typing import Any

import msgspec

from forge_jobs import Context, Dead, Done, Failed, JobOutcome, WorkerPoolHandler
from telegram_gateway.calls import Call
from telegram_gateway.config import Bot, CommandSettings
from telegram_gateway.update import Update

from .answers import calls_of


class CommandHandler:
    """Needs the context of a job, so it cannot run inline."""

    def __init__(self, bot: Bot, plan: CommandSettings) -> None:
        self._bot = bot
        self._pool = WorkerPoolHandler(
            argv=plan.argv,
            kind=f"command.{bot.slug}",
            size=plan.size,
            timeout_secs=plan.timeout_s,
            inherit_env=False,
        )

    async def answer_in_job(self, ctx: Context, update: Update) -> list[Call]:
        """Run the program and parse its result."""
        try:
            content: Any = msgspec.json.decode(update.raw)
        except msgspec.MsgspecError:
            raise Dead("the update is not JSON") from None
        payload = {"update": content, "bot": self._bot.slug, "attempt": ctx.job.attempts}
        outcome: JobOutcome = await self._pool.run(ctx, payload)
        if isinstance(outcome, Done):
            return calls_of(outcome.value, update)
        raise outcome

    async def answer(self, update: Update, attempt: int) -> list[Call]:
        raise Failed("the command handler runs as a job only")

    async def close(self) -> None:
        return
