"""Gateway: the composition root. Builds, starts and stops bots, queues, webhook and janitor."""

import asyncio
import base64
import hashlib
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp

from forge_jobs import (
    SYSTEM_CLOCK,
    Clock,
    Closed,
    EngineSettings,
    Forge,
    StoreError,
    prometheus_text,
)

from .addresses import Resolve, resolve_host
from .bot_api import ApiError, BotApi, NoResponse
from .calls import Call
from .config import Bot, HandlerName, Settings
from .handlers.auth import AuthHandler
from .handlers.command import CommandHandler
from .handlers.contract import Handler
from .handlers.echo import Echo
from .handlers.http import HttpHandler
from .janitor import Janitor
from .masking import Mask
from .metrics import GatewayMetrics
from .pages import pages
from .queue_settings import apply_queue_settings
from .queueing import BotQueue, DirectReply, QueuedReply
from .reported_jobs import ReportedJobs
from .sending import Outgoing
from .service_check import check_services
from .storage import CachedGatewayStore, GatewayStore, Reply, gateway_store_at
from .update import Update
from .update_receiver import BotRuntime, UpdateReceiver
from .update_run import UpdateRun
from .webhook import Webhook

_LOG: Final = logging.getLogger("telegram_gateway")
_CHECK_TIMEOUT_S: Final = 1.0
# The gateway's handlers cannot run in a child process, so a job that crashes the process is never
# isolated: it is dead once its attempts are spent, and not before.
_UNLIMITED: Final = 1 << 30
# Beyond that the rest waits for the next start, or for another process.
_MAX_LAST_REPLIES: Final = 500
_GET_ME_RETRIES_S: Final = (1.0, 5.0, 25.0)


class Gateway:
    """Everything that one process needs. Nothing is opened before ``running``."""

    def __init__(
        self,
        settings: Settings,
        bots: Sequence[Bot],
        *,
        clock: Clock = SYSTEM_CLOCK,
        resolve: Resolve = resolve_host,
    ) -> None:
        self.settings = settings
        self.bots = bots
        self.counters = GatewayMetrics()
        self.mask = Mask(secrets_of(settings, bots))
        self.reported = ReportedJobs()
        self.api = BotApi(self.mask, self.counters)
        self._resolve = resolve
        self.forge = self._forge(clock)
        self.clock: Clock = clock if self.forge is None else self.forge.clock
        self.storage: GatewayStore = gateway_store_at(settings.database_url)
        self._cached_storage = CachedGatewayStore(self.storage, self.clock)
        self.receiver = UpdateReceiver(
            settings, self.storage, self._cached_storage, self.api, self.clock, self.counters
        )
        self.runtimes = {bot.slug: self._runtime(bot) for bot in bots}
        self.webhook = Webhook(
            self.runtimes,
            self.receiver,
            self.counters,
            self.clock,
            max_body=settings.max_body,
            fallback=pages(self.checks, self.metrics, self._admin()),
        )
        self.app: ASGIApp = self.webhook

    # ------------------------------------------------------------------ running

    @asynccontextmanager
    async def running(self, *, workers: bool = True) -> AsyncGenerator["Gateway", None]:
        """Open the store, run the janitor once, start workers; stop in reverse order."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.close)
            await self.open_stores()
            if self.forge is not None:
                janitor = Janitor(self.forge, self.settings, self.storage, self.counters)
                await apply_queue_settings(self.forge, self.storage, self.settings, self.bots)
                await janitor.run_once()
                if workers:
                    # The HTTP server uses the first quarter of the grace period, the last replies
                    # the last one.
                    stack.push_async_callback(self._send_last_replies, self.forge)
                    grace_s = self.settings.grace_s / 2
                    worker = self.forge.worker(self._queues(), shutdown_timeout=grace_s)
                    await stack.enter_async_context(worker)
                    janitor_task = asyncio.create_task(janitor.run(), name="janitor")
                    stack.push_async_callback(_cancel, janitor_task)
            yield self
            self.webhook.draining = True

    async def _send_last_replies(self, forge: Forge) -> None:
        """Send what the last handlers enqueued while the worker stopped, and what else is due."""
        queues = [bot.sends_queue for bot in self.bots]
        try:
            async with asyncio.timeout(self.settings.grace_s / 4):
                report = await forge.drain(queues, limit=_MAX_LAST_REPLIES)
        except (TimeoutError, StoreError, Closed) as error:
            reason = str(error) or "the grace period ended"
            _LOG.warning("replies that are not sent yet wait for the next start: %s", reason)
            return
        if report.ran:
            _LOG.info("sent %d last replies", report.done)

    async def open_stores(self) -> None:
        """Open the job store and the gateway's own tables. Raises if either is not available."""
        if self.forge is not None:
            await self.forge.aready()
        await self.storage.open()
        for runtime in self.runtimes.values():
            if runtime.queue is not None:
                await runtime.queue.open(self.storage)

    async def check_tokens(self) -> None:
        """Call getMe for each bot, with retries. A failure is logged and does not stop startup."""
        for bot in self.bots:
            for pause_s in _GET_ME_RETRIES_S:
                try:
                    await self.api.call(bot, "getMe", {})
                except ApiError as error:
                    _LOG.warning("bot %s: getMe failed: %s", bot.slug, error)
                except NoResponse as error:
                    _LOG.warning("bot %s: getMe failed: %s", bot.slug, error)
                    await self.clock.sleep(pause_s)
                    continue
                break

    async def check_services(self) -> None:
        """Log a warning for each service that cannot be called."""
        for warning in await check_services(self.bots, self._resolve):
            _LOG.warning("%s", warning)

    # ------------------------------------------------------------------ health

    async def checks(self) -> list[tuple[str, bool]]:
        """The readiness checks. Telegram is not part of them."""
        found = [("not draining", not self.webhook.draining)]
        if self.forge is None:
            return found
        wanted = {bot.updates_queue for bot in self.bots if bot.in_queue}
        served: set[str] = set()
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT_S):
                store = await self.forge.aready()
                # Processes with a valid lease count, this one or others. The store decides that
                # by its own clock.
                for process in await store.processes.all():
                    served.update(process.queues)
            answers = True
        except (TimeoutError, StoreError, Closed):
            answers = False
        found.append(("database answers", answers))
        return [*found, ("workers run", wanted <= served)] if wanted else found

    async def metrics(self) -> str:
        """The gateway's own metrics, then the metrics of the job store, as Prometheus text."""
        page = self.counters.render()
        if self.forge is None:
            return page
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT_S * 5):
                return page + await prometheus_text(await self.forge.aready())
        except (TimeoutError, StoreError):
            return page

    # ------------------------------------------------------------------ parts

    def _forge(self, clock: Clock) -> Forge | None:
        url = self.settings.database_url
        if url is None:
            return None
        engine = EngineSettings(
            lease_s=self.settings.lease_s,
            heartbeat_s=self.settings.heartbeat_s,
            poll_s=self.settings.poll_s,
            isolate_after_crashes=_UNLIMITED,
        )
        return Forge(url, settings=engine, clock=clock)

    def _admin(self) -> ASGIApp | None:
        """Mission Control and its API, protected by ADMIN_TOKEN as bearer token or password."""
        token = self.settings.admin_token
        if token is None or self.forge is None:
            return None
        # Imported here: without ADMIN_TOKEN no pages and templates are loaded.
        from forge_jobs.web import from_environment, mission_control

        hashed = hashlib.sha256(token.encode()).hexdigest()
        known = {"FORGE_WEB_PASSWORD": token, "FORGE_WEB_TOKENS": f"admin:admin:{hashed}"}
        return mission_control(self.forge, auth=from_environment(known), title="Telegram gateway")

    def _queues(self) -> dict[str, int]:
        slots = self.settings.workers
        found = {bot.sends_queue: slots for bot in self.bots}
        return found | {bot.updates_queue: slots for bot in self.bots if bot.in_queue}

    def _runtime(self, bot: Bot) -> BotRuntime:
        outgoing = Outgoing(
            bot, self.api, self.storage, self._cached_storage, self.clock, self.counters
        )
        handler = self._handler(bot, outgoing)
        queue = None
        if self.forge is not None:
            run = UpdateRun(self.forge, bot, handler, self.mask, self.reported)
            stuck_s = self.settings.stuck_timeout_s
            queue = BotQueue(self.forge, bot, run, outgoing, self.reported, stuck_s=stuck_s)
        return BotRuntime(bot, handler, outgoing, queue)

    def _handler(self, bot: Bot, outgoing: Outgoing) -> Handler:
        match bot.handler:
            case HandlerName.ECHO:
                return Echo()
            case HandlerName.HTTP:
                assert bot.http is not None
                return HttpHandler(bot, bot.http, clock=self.clock, resolve=self._resolve)
            case HandlerName.COMMAND:
                assert bot.command is not None
                return CommandHandler(bot, bot.command)
            case HandlerName.AUTH:
                return self._auth(bot, outgoing)

    def _auth(self, bot: Bot, outgoing: Outgoing) -> Handler:
        def reply(call: Call) -> Reply:
            queue = self.runtimes[bot.slug].queue
            return DirectReply(outgoing, call) if queue is None else QueuedReply(queue, call)

        async def delete(update: Update) -> None:
            try:
                where = {"chat_id": update.chat_id, "message_id": update.message_id}
                await self.api.call(bot, "deleteMessage", where)
            except (ApiError, NoResponse) as error:
                _LOG.info("bot %s: a message could not be deleted: %s", bot.slug, error)

        return AuthHandler(
            secret=self.settings.auth_secret or b"",
            session_s=self.settings.auth_session_s,
            storage=self.storage,
            clock=self.clock,
            reply=reply,
            delete=delete,
        )

    async def close(self) -> None:
        """Close handlers, connections and stores."""
        for runtime in self.runtimes.values():
            await runtime.handler.close()
        await self.api.close()
        await self.storage.close()
        if self.forge is not None:
            await self.forge.aclose()


def secrets_of(settings: Settings, bots: Sequence[Bot]) -> list[str]:
    """All values that must not appear in any output."""
    found = [bot.token for bot in bots]
    found += [bot.token.partition(":")[2] for bot in bots]
    found += [secret.decode() for bot in bots for secret in bot.secrets]
    if settings.auth_secret is not None:
        found.append(settings.auth_secret.decode())
    if settings.admin_token is not None:
        found.append(settings.admin_token)
    if settings.database_url is not None:
        found += _password_of(settings.database_url)
    for bot in bots:
        keys = bot.http.signing if bot.http is not None else ()
        found += [base64.b64encode(key).decode() for key in keys]
    return found


def _password_of(url: str) -> list[str]:
    try:
        password = urlsplit(url).password or ""
    except ValueError:
        return []
    return [password, unquote(password)]


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
