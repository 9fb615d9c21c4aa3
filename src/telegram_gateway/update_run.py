"""Runs the handler of a queued update: its age first, then the circuit breaker, then the handler.

Every failed attempt is logged here, with bot, update, chat, reason and job.
"""

import logging
from itertools import pairwise
from typing import Final

from forge_jobs import Context, Dead, Failed, Forge, JobOutcome, Throttled

from .breaker import Breaker
from .calls import Call
from .config import Bot
from .handlers.command import CommandHandler
from .handlers.contract import Handler
from .masking import Mask
from .reported_jobs import ReportedJobs
from .update import Update

_LOG: Final = logging.getLogger("telegram_gateway.updates")
_SECOND: Final = 1_000_000


class UpdateRun:
    """Runs the updates of one bot."""

    def __init__(
        self, forge: Forge, bot: Bot, handler: Handler, mask: Mask, reported: ReportedJobs
    ) -> None:
        self.breaker = Breaker(forge.clock, bot.slug)
        self._forge = forge
        self._bot = bot
        self._handler = handler
        self._mask = mask
        self._reported = reported

    async def run(self, update: Update, ctx: Context) -> list[Call]:
        """The calls to make. Raises an outcome, whose text has no secrets."""
        if await self._is_too_old(update, ctx):
            error = f"given up: the update is older than {update.lifetime_s:,} s"
            self._log_failure(update, ctx, error, final=True)
            raise Dead(error)
        wait_s = self.breaker.wait_s()
        if wait_s > 0:
            raise Throttled(wait_s)
        try:
            if isinstance(self._handler, CommandHandler):
                calls = await self._handler.answer_in_job(ctx, update)
            else:
                calls = await self._handler.answer(update, ctx.job.attempts)
        except Failed as failed:
            self.breaker.record_failure()
            error = self._mask(failed.message)
            self._log_failure(update, ctx, error)
            raise Failed(error, retry_after=failed.retry_after_s or None) from None
        except Dead as dead:
            self.breaker.record_success()
            error = self._mask(dead.message)
            self._log_failure(update, ctx, error, final=True)
            raise Dead(error) from None
        except JobOutcome:
            raise
        except Exception as bug:
            # Its text may contain a URL with a token.
            error = self._mask(f"{type(bug).__name__}: {bug}")
            self._log_failure(update, ctx, error, traceback=True)
            raise Failed(error) from None
        self.breaker.record_success()
        _LOG.debug("bot %s: %s: done, %d calls", self._bot.slug, update.label, len(calls))
        return calls

    async def _is_too_old(self, update: Update, ctx: Context) -> bool:
        """Whether a reply has become useless. An update that an operator retried never is.

        The clock of this host only raises the suspicion; the clock of the store decides.
        """
        stored_at = int(ctx.job.enqueued_at.timestamp() * _SECOND)
        last = stored_at + update.lifetime_s * _SECOND
        if self._forge.clock.now() <= last:
            return False
        store = await self._forge.aready()
        if await store.now() <= last:
            return False
        job = await self._forge.job(ctx.job.id).arefresh()
        # A retry by an operator starts to count attempts anew.
        attempts = [*(error.attempt for error in job.errors), ctx.job.attempts]
        return all(later > earlier for earlier, later in pairwise(attempts))

    def _log_failure(
        self,
        update: Update,
        ctx: Context,
        error: str,
        *,
        final: bool = False,
        traceback: bool = False,
    ) -> None:
        job = ctx.job
        left = "no more attempts" if final or job.attempts >= job.max_attempts else "to be retried"
        _LOG.warning(
            "bot %s: %s: attempt %d of %d failed, %s: %s (job %s)",
            self._bot.slug, update.label, job.attempts, job.max_attempts, left, error, job.id,
            extra={"bot": self._bot.slug, "update_id": update.id, "chat_id": update.chat_id,
                   "job_id": job.id, "error": error},
            exc_info=traceback,
        )  # fmt: skip
        self._reported.add(job.id)
