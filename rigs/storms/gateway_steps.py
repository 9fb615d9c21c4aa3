"""The steps at which a gateway is killed, from the socket to the sent message.

The gateway's code is unchanged. A gateway process of the storm (``gateway_process``) wraps the one
function of its step; when the step is reached, the wrapper kills the process with SIGKILL, so that
no cleanup runs.
"""

import asyncio
import functools
import inspect
import os
import signal
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvicorn.protocols.http.auto
from httpcore2._async.http11 import AsyncHTTP11Connection
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

from forge_jobs.backends.postgres.enqueue import Enqueuer
from forge_jobs.backends.postgres.exchange import Exchanger
from forge_jobs.backends.postgres.jobs import PostgresJobs
from forge_jobs.backends.sqlite.enqueue import Enqueue
from forge_jobs.backends.sqlite.exchange import ExchangeOperation
from forge_jobs.backends.sqlite.jobs import SqliteJobs
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Exchange
from rigs.storms.history import History
from telegram_gateway.bot_api import BotApi
from telegram_gateway.handlers.echo import Echo
from telegram_gateway.janitor import Janitor
from telegram_gateway.queueing import BotQueue
from telegram_gateway.update_receiver import UpdateReceiver
from telegram_gateway.update_run import UpdateRun
from telegram_gateway.webhook import Webhook

STORES = (SqliteJobs, PostgresJobs)


class KillPoint:
    """Kills this process when its step is reached for the ``hits``-th time after arming."""

    def __init__(self, history: History, step: str, hits: int, *, armed: bool) -> None:
        self._history = history
        self._step = step
        self._hits = hits
        self.armed = armed

    def __call__(self) -> None:
        if not self.armed:
            return
        self._hits -= 1
        if self._hits < 1:
            self._history.write("killed", step=self._step)
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Step:
    """One step. ``may_repeat``: a kill here may send a message twice.

    ``starting``: reached at startup only (later, connections are reused). ``dead_only``: reached
    only by an update that becomes dead.
    """

    name: str
    description: str
    install: Callable[[KillPoint], None]
    may_repeat: bool = False
    starting: bool = False
    dead_only: bool = False


Predicate = Callable[..., bool]


def _always(*_: Any) -> bool:
    return True


def before(owner: Any, name: str, kill: Callable[[], None], matches: Predicate = _always) -> None:
    """Kill when the call starts; ``matches`` gets its arguments."""
    original: Any = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **named: Any) -> Any:
        if matches(*args, *named.values()):
            kill()
        return original(*args, **named)

    setattr(owner, name, wrapper)


def after(owner: Any, name: str, kill: Callable[[], None], matches: Predicate = _always) -> None:
    """Kill when the call has returned; ``matches`` gets its result and its arguments."""
    original: Any = getattr(owner, name)
    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def later(*args: Any, **named: Any) -> Any:
            answer = await original(*args, **named)
            if matches(answer, *args, *named.values()):
                kill()
            return answer

        setattr(owner, name, later)
        return

    @functools.wraps(original)
    def wrapper(*args: Any, **named: Any) -> Any:
        answer = original(*args, **named)
        if matches(answer, *args, *named.values()):
            kill()
        return answer

    setattr(owner, name, wrapper)


def on_the_wire(
    owner: Any, name: str, kill: Callable[[], None], matches: Predicate = _always
) -> None:
    """Kill when a statement was sent and its reply has not arrived; it may or may not commit."""
    original: Any = getattr(owner, name)

    @functools.wraps(original)
    async def wrapper(*args: Any, **named: Any) -> Any:
        if not matches(*args, *named.values()):
            return await original(*args, **named)
        pending = asyncio.ensure_future(original(*args, **named))
        for _ in range(3):
            await asyncio.wait([pending], timeout=0)
        kill()
        return await pending

    setattr(owner, name, wrapper)


# ------------------------------------------------------------------------------- the webhook


def _janitor_starting(kill: KillPoint) -> None:
    before(Janitor, "run_once", kill)


def _janitor_done(kill: KillPoint) -> None:
    after(Janitor, "run_once", kill)


def _accepted(kill: KillPoint) -> None:
    after(uvicorn.protocols.http.auto.AutoHTTPProtocol, "connection_made", kill)


def _authenticated(kill: KillPoint) -> None:
    before(Webhook, "_receive_update", kill)


def _half_read(kill: KillPoint) -> None:
    """The first half of a body arrives and is read; the second one never is."""
    protocol: Any = uvicorn.protocols.http.auto.AutoHTTPProtocol
    original = protocol.data_received
    # Connections whose head has come alone.
    headed: weakref.WeakSet[Any] = weakref.WeakSet()

    def halved(self: Any, data: bytes) -> None:
        head, end, body = data.partition(b"\r\n\r\n")
        if self in headed:
            head, end, body = b"", b"", data
        elif not (kill.armed and head.startswith(b"POST /bot/")):
            original(self, data)
            return
        headed.discard(self)
        half = len(body) // 2
        original(self, head + end + body[:half])
        if not body:
            headed.add(self)
            return

        def rest() -> None:
            kill()
            original(self, body[half:])

        asyncio.get_running_loop().call_later(0.02, rest)

    protocol.data_received = halved


def _read(kill: KillPoint) -> None:
    before(UpdateReceiver, "receive", kill)


def _inserting(kill: KillPoint) -> None:
    """SQLite: within the transaction. Postgres: its one statement is on its way."""
    after(Enqueue, "__call__", kill)
    after(Enqueue, "run_batch", kill)
    on_the_wire(Enqueuer, "_ask", kill)


def _stored(kill: KillPoint) -> None:
    after(BotQueue, "enqueue_update", kill)


def _acknowledged(kill: KillPoint) -> None:
    """200 is written; the update must not be claimed before that."""
    for store in STORES:
        _claim_no_updates(store, kill)
    after(RequestResponseCycle, "send", kill, _is_end_of_webhook)


def _claim_no_updates(store: Any, kill: KillPoint) -> None:
    original = store.exchange

    async def exchange(self: Any, request: Exchange) -> Any:
        if kill.armed:
            want = [one for one in request.want if not one.queue.startswith("updates.")]
            named = {name: getattr(request, name) for name in Exchange.__struct_fields__}
            request = Exchange(**{**named, "want": want})
        return await original(self, request)

    store.exchange = exchange


def _is_end_of_webhook(_: None, cycle: Any, message: Any) -> bool:
    is_bot = cycle.scope["path"].startswith("/bot/")
    return is_bot and message["type"] == "http.response.body" and not message.get("more_body")


# ------------------------------------------------------------------------------- the queue


def _claimed(kill: KillPoint) -> None:
    for store in STORES:
        after(store, "exchange", kill, lambda answer, *_: _has(answer.claims, "update."))


def _running(kill: KillPoint) -> None:
    before(Echo, "answer", kill)
    after(AsyncHTTP11Connection, "_send_request_body", kill, lambda _, __, ask: not _is_api(ask))


def _handled(kill: KillPoint) -> None:
    after(UpdateRun, "run", kill)


def _finishing(kill: KillPoint) -> None:
    """The update's end and its answers are written and not committed."""
    after(ExchangeOperation, "__call__", kill, lambda _, one, *__: _has_replies(one._request))
    after(Exchanger, "_in_steps", kill, lambda _, __, ___, ask, *____: _has_replies(ask))


def _finished(kill: KillPoint) -> None:
    for store in STORES:
        after(store, "exchange", kill, lambda _, __, ask: _has_replies(ask))


def _dead_finishing(kill: KillPoint) -> None:
    """The update's death and its notice are written and not committed."""
    after(ExchangeOperation, "__call__", kill, lambda _, one, *__: _has_dead(one._request))
    after(Exchanger, "_in_steps", kill, lambda _, __, ___, ask, *____: _has_dead(ask))


def _dead_finished(kill: KillPoint) -> None:
    for store in STORES:
        after(store, "exchange", kill, lambda _, __, ask: _has_dead(ask))


def _notice_run(kill: KillPoint) -> None:
    """The notice has run; its message is not stored."""
    for store in STORES:
        before(store, "exchange", kill, lambda _, ask: _has(ask.finish, "notice."))


# ------------------------------------------------------------------------------- the message


def _sending(kill: KillPoint) -> None:
    before(BotApi, "call", kill, _is_message)


def _half_written(kill: KillPoint) -> None:
    after(AsyncHTTP11Connection, "_send_request_headers", kill, lambda _, __, ask: _is_send(ask))


def _written(kill: KillPoint) -> None:
    """Telegram has time to act on the request; its answer lies in the socket, unread."""
    connection: Any = AsyncHTTP11Connection
    original = connection._send_request_body

    async def send(self: Any, request: Any) -> None:
        await original(self, request)
        if kill.armed and _is_send(request):
            await asyncio.sleep(0.05)
            kill()

    connection._send_request_body = send


def _answered(kill: KillPoint) -> None:
    after(BotApi, "call", kill, lambda _, *args: _is_message(*args))


def _send_finishing(kill: KillPoint) -> None:
    """SQLite: marked and not committed. Postgres: the statement is on its way."""
    after(ExchangeOperation, "__call__", kill, lambda _, one, *__: _has_done(one._request, "send."))
    on_the_wire(Exchanger, "exchange", kill, lambda _, ask: _has_done(ask, "send."))


def _send_finished(kill: KillPoint) -> None:
    for store in STORES:
        after(store, "exchange", kill, lambda _, __, ask: _has_done(ask, "send."))


def _has(found: Any, kind: str) -> bool:
    return any(one.kind.startswith(kind) for one in found)


def _has_done(ask: Exchange, kind: str) -> bool:
    return any(one.kind.startswith(kind) and one.status is JobStatus.DONE for one in ask.finish)


def _has_replies(ask: Exchange) -> bool:
    return any(one.kind.startswith("update.") and one.jobs for one in ask.finish)


def _has_dead(ask: Exchange) -> bool:
    return any(
        one.kind.startswith("update.") and one.status is JobStatus.DEAD for one in ask.finish
    )


def _is_message(_: Any, __: Any, method: str, *___: Any) -> bool:
    return method == "sendMessage"


def _is_api(ask: Any) -> bool:
    return ask.url.target.startswith(b"/bot")


def _is_send(ask: Any) -> bool:
    return _is_api(ask) and ask.url.target.endswith(b"/sendMessage")


STEPS = {
    step.name: step
    for step in (
        Step(
            "janitor-starting",
            "store open, before the janitor's pass",
            _janitor_starting,
            starting=True,
        ),
        Step(
            "janitor-done",
            "janitor's pass over, before workers and listener",
            _janitor_done,
            starting=True,
        ),
        Step("accepted", "connection accepted", _accepted, starting=True),
        Step("authenticated", "secret checked, body not read", _authenticated),
        Step("half-read", "half of the body read", _half_read),
        Step("read", "body read, not checked", _read),
        Step("inserting", "update written, not committed", _inserting),
        Step("stored", "update committed, no 200", _stored),
        Step("acknowledged", "200 written, update not claimed", _acknowledged),
        Step("claimed", "update claimed, handler not begun", _claimed),
        Step("running", "handler begun; the service was asked", _running),
        Step("handled", "handler done, nothing of it written", _handled),
        Step("finishing", "finish and replies written, not committed", _finishing),
        Step("finished", "finish and replies committed, nothing sent", _finished),
        Step(
            "dead-finishing",
            "death and notice written, not committed",
            _dead_finishing,
            dead_only=True,
        ),
        Step("dead-finished", "death and notice committed", _dead_finished, dead_only=True),
        Step("notice-run", "notice made, its message not stored", _notice_run, dead_only=True),
        Step("sending", "message claimed, not requested", _sending),
        Step("half-written", "head of the request written", _half_written),
        Step("written", "request written, no answer read", _written, may_repeat=True),
        Step("answered", "response read, send job not finished", _answered, may_repeat=True),
        Step(
            "send-finishing",
            "finish of the send job written, not committed",
            _send_finishing,
            may_repeat=True,
        ),
        Step("send-finished", "finish of the send job committed", _send_finished),
    )
}
