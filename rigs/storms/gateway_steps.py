"""Where a gateway can be killed, from the socket to the sent message, and how to be there in time.

The product knows nothing of this. A life of the storm (``gateway_lives``) puts a wrapper around the
one call that stands for its step; when the step is reached the wrapper kills the process with
SIGKILL, so that nothing is tidied up and nothing is written any more.
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
from telegram_gateway.webhook import Webhook

STORES = (SqliteJobs, PostgresJobs)


class Strike:
    """Kills this process when its step is reached for the ``hits``-th time; once it is armed."""

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
            self._history.write("struck", step=self._step)
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Step:
    """One of them. ``again``: the user may get a message twice when the process dies here.

    ``starting``: reached at the beginning of a life (later, connections are kept and used again).
    ``dying``: only an update that dies comes here.
    """

    name: str
    words: str
    install: Callable[[Strike], None]
    again: bool = False
    starting: bool = False
    dying: bool = False


Fits = Callable[..., bool]


def _always(*_: Any) -> bool:
    return True


def before(owner: Any, name: str, strike: Callable[[], None], fits: Fits = _always) -> None:
    """Strike when the call begins; ``fits`` gets its arguments."""
    whole: Any = getattr(owner, name)

    @functools.wraps(whole)
    def struck(*args: Any, **named: Any) -> Any:
        if fits(*args, *named.values()):
            strike()
        return whole(*args, **named)

    setattr(owner, name, struck)


def after(owner: Any, name: str, strike: Callable[[], None], fits: Fits = _always) -> None:
    """Strike when the call is through; ``fits`` gets its answer and its arguments."""
    whole: Any = getattr(owner, name)
    if inspect.iscoroutinefunction(whole):

        @functools.wraps(whole)
        async def later(*args: Any, **named: Any) -> Any:
            answer = await whole(*args, **named)
            if fits(answer, *args, *named.values()):
                strike()
            return answer

        setattr(owner, name, later)
        return

    @functools.wraps(whole)
    def struck(*args: Any, **named: Any) -> Any:
        answer = whole(*args, **named)
        if fits(answer, *args, *named.values()):
            strike()
        return answer

    setattr(owner, name, struck)


def on_the_wire(owner: Any, name: str, strike: Callable[[], None], fits: Fits = _always) -> None:
    """Strike when a statement was sent and its answer has not come; it may or may not commit."""
    whole: Any = getattr(owner, name)

    @functools.wraps(whole)
    async def struck(*args: Any, **named: Any) -> Any:
        if not fits(*args, *named.values()):
            return await whole(*args, **named)
        asked = asyncio.ensure_future(whole(*args, **named))
        for _ in range(3):
            await asyncio.wait([asked], timeout=0)
        strike()
        return await asked

    setattr(owner, name, struck)


# ------------------------------------------------------------------------------- the door


def _sweeping(strike: Strike) -> None:
    before(Janitor, "run_once", strike)


def _swept(strike: Strike) -> None:
    after(Janitor, "run_once", strike)


def _accepted(strike: Strike) -> None:
    after(uvicorn.protocols.http.auto.AutoHTTPProtocol, "connection_made", strike)


def _known(strike: Strike) -> None:
    before(Webhook, "_receive_update", strike)


def _half_read(strike: Strike) -> None:
    """The first half of a body arrives and is read; the second one never is."""
    protocol: Any = uvicorn.protocols.http.auto.AutoHTTPProtocol
    whole = protocol.data_received
    # Connections whose head has come alone.
    headed: weakref.WeakSet[Any] = weakref.WeakSet()

    def halved(self: Any, data: bytes) -> None:
        head, end, body = data.partition(b"\r\n\r\n")
        if self in headed:
            head, end, body = b"", b"", data
        elif not (strike.armed and head.startswith(b"POST /bot/")):
            whole(self, data)
            return
        headed.discard(self)
        half = len(body) // 2
        whole(self, head + end + body[:half])
        if not body:
            headed.add(self)
            return

        def rest() -> None:
            strike()
            whole(self, body[half:])

        asyncio.get_running_loop().call_later(0.02, rest)

    protocol.data_received = halved


def _read(strike: Strike) -> None:
    before(UpdateReceiver, "receive", strike)


def _inserting(strike: Strike) -> None:
    """SQLite: within the transaction. Postgres: its one statement is on its way."""
    after(Enqueue, "__call__", strike)
    after(Enqueue, "run_batch", strike)
    on_the_wire(Enqueuer, "_ask", strike)


def _stored(strike: Strike) -> None:
    after(BotQueue, "enqueue_update", strike)


def _acknowledged(strike: Strike) -> None:
    """200 is written; nobody may claim the update before that."""
    for store in STORES:
        _claim_no_updates(store, strike)
    after(RequestResponseCycle, "send", strike, _is_end_of_webhook)


def _claim_no_updates(store: Any, strike: Strike) -> None:
    whole = store.exchange

    async def exchange(self: Any, request: Exchange) -> Any:
        if strike.armed:
            want = [one for one in request.want if not one.queue.startswith("updates.")]
            named = {name: getattr(request, name) for name in Exchange.__struct_fields__}
            request = Exchange(**{**named, "want": want})
        return await whole(self, request)

    store.exchange = exchange


def _is_end_of_webhook(_: None, cycle: Any, message: Any) -> bool:
    is_bot = cycle.scope["path"].startswith("/bot/")
    return is_bot and message["type"] == "http.response.body" and not message.get("more_body")


# ------------------------------------------------------------------------------- the queue


def _claimed(strike: Strike) -> None:
    for store in STORES:
        after(store, "exchange", strike, lambda answer, *_: _has(answer.claims, "update."))


def _running(strike: Strike) -> None:
    before(Echo, "answer", strike)
    after(AsyncHTTP11Connection, "_send_request_body", strike, lambda _, __, ask: not _is_api(ask))


def _worked(strike: Strike) -> None:
    after(BotQueue, "_run_handler", strike)


def _on_finish(strike: Strike) -> None:
    """The update's end and its answers are written and not committed."""
    after(ExchangeOperation, "__call__", strike, lambda _, one, *__: _ends(one._request, "update."))
    after(Exchanger, "_in_steps", strike, lambda _, __, ___, ask, *____: _ends(ask, "update."))


def _ended(strike: Strike) -> None:
    for store in STORES:
        after(store, "exchange", strike, lambda _, __, ask: _ends(ask, "update."))


def _dying(strike: Strike) -> None:
    """The update's death and its notice are written and not committed."""
    after(ExchangeOperation, "__call__", strike, lambda _, one, *__: _dies(one._request))
    after(Exchanger, "_in_steps", strike, lambda _, __, ___, ask, *____: _dies(ask))


def _died(strike: Strike) -> None:
    for store in STORES:
        after(store, "exchange", strike, lambda _, __, ask: _dies(ask))


def _noticed(strike: Strike) -> None:
    """The notice has run; its message is not stored."""
    for store in STORES:
        before(store, "exchange", strike, lambda _, ask: _has(ask.finish, "notice."))


# ------------------------------------------------------------------------------- the message


def _sending(strike: Strike) -> None:
    before(BotApi, "call", strike, _is_message)


def _half_written(strike: Strike) -> None:
    after(AsyncHTTP11Connection, "_send_request_headers", strike, lambda _, __, ask: _is_send(ask))


def _written(strike: Strike) -> None:
    """Telegram has time to act on the request; its answer lies in the socket, unread."""
    connection: Any = AsyncHTTP11Connection
    whole = connection._send_request_body

    async def send(self: Any, request: Any) -> None:
        await whole(self, request)
        if strike.armed and _is_send(request):
            await asyncio.sleep(0.05)
            strike()

    connection._send_request_body = send


def _told(strike: Strike) -> None:
    after(BotApi, "call", strike, lambda _, *args: _is_message(*args))


def _marking(strike: Strike) -> None:
    """SQLite: marked and not committed. Postgres: the statement is on its way."""
    after(
        ExchangeOperation, "__call__", strike, lambda _, one, *__: _has_end(one._request, "send.")
    )
    on_the_wire(Exchanger, "exchange", strike, lambda _, ask: _has_end(ask, "send."))


def _marked(strike: Strike) -> None:
    for store in STORES:
        after(store, "exchange", strike, lambda _, __, ask: _has_end(ask, "send."))


def _has(found: Any, kind: str) -> bool:
    return any(one.kind.startswith(kind) for one in found)


def _has_end(ask: Exchange, kind: str) -> bool:
    return any(one.kind.startswith(kind) and one.status is JobStatus.DONE for one in ask.finish)


def _ends(ask: Exchange, kind: str) -> bool:
    return any(one.kind.startswith(kind) and one.jobs for one in ask.finish)


def _dies(ask: Exchange) -> bool:
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
        Step("sweeping", "store open, before the janitor's pass", _sweeping, starting=True),
        Step("swept", "janitor's pass over, before workers and listener", _swept, starting=True),
        Step("accepted", "connection accepted", _accepted, starting=True),
        Step("known", "secret checked, body not read", _known),
        Step("half-read", "half of the body read", _half_read),
        Step("read", "body read, not judged", _read),
        Step("inserting", "update written, not committed", _inserting),
        Step("stored", "update committed, no 200", _stored),
        Step("acknowledged", "200 written, update not claimed", _acknowledged),
        Step("claimed", "update claimed, handler not begun", _claimed),
        Step("running", "handler begun; the service was asked", _running),
        Step("worked", "handler done, nothing of it written", _worked),
        Step("ending", "end and answers written, not committed", _on_finish),
        Step("ended", "end and answers committed, nothing sent", _ended),
        Step("dying", "death and notice written, not committed", _dying, dying=True),
        Step("died", "death and notice committed", _died, dying=True),
        Step("noticed", "notice made, its message not stored", _noticed, dying=True),
        Step("sending", "message claimed, not requested", _sending),
        Step("half-written", "head of the request written", _half_written),
        Step("written", "request written, no answer read", _written, again=True),
        Step("told", "answer read, message not marked as sent", _told, again=True),
        Step("marking", "mark written, not committed", _marking, again=True),
        Step("marked", "mark committed", _marked),
    )
}
