"""Inline bots with a store: an update whose handling failed, for whatever reason, is handled when
it is redelivered; one that was handled is a duplicate."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from forge_jobs import Closed, Dead, Failed, Snooze, Throttled, Unavailable, Unknown
from forge_jobs.testing import frozen
from telegram_gateway.bot_api import ApiError, NoResponse, RequestNotSent
from telegram_gateway.gateway import Gateway
from telegram_gateway.storage.webhook_cache import STORE_RETRY_S
from tests.gateway.conftest import AUTH_SECRET, Bots, post, update

BOTS = """bots:
  inline: {handler: echo, requireAuth: false}
  back: {handler: echo, requireAuth: false, syncFailure: redeliver}
  echo: {handler: echo}
  access: {handler: auth}
"""


class UncaughtError(BaseException):
    """An error that no code catches."""


FAILURES = {
    "sqlite's error": sqlite3.OperationalError("database is locked"),
    "asyncpg's error": asyncpg.ConnectionDoesNotExistError("connection was closed"),
    "asyncpg's interface": asyncpg.InterfaceError("connection is closed"),
    "unavailable": Unavailable("the store is away"),
    "unknown": Unknown("no reply"),
    "closed": Closed("closed"),
    "os": ConnectionResetError("reset"),
    "time": TimeoutError(),
    "a bug": RuntimeError("a bug"),
    "cancelled": asyncio.CancelledError(),
    "gone": UncaughtError(),
    "failed": Failed("failed"),
    "dead": Dead("dead"),
    "snooze": Snooze(3_600),
    "throttled": Throttled(3_600),
}
OUTCOMES = ("failed", "dead", "snooze", "throttled")
TELEGRAM_FAILURES = {
    "not reached": RequestNotSent("sendMessage: ConnectError"),
    "unreachable": NoResponse("sendMessage: ReadError"),
    "refused": ApiError(400, "no"),
    "flood": ApiError(429, "slow down", retry_after_s=0.01),
    "broken": ApiError(500, "oops"),
}


@dataclass
class FailingCall:
    """Replaces a coroutine function: raises ``error`` while it is set."""

    whole: Callable[..., Awaitable[Any]]
    error: BaseException | None = None
    met: int = 0
    after: bool = False

    async def __call__(self, *given: Any, **named: Any) -> Any:
        if self.error is None:
            return await self.whole(*given, **named)
        self.met += 1
        if self.after:
            await self.whole(*given, **named)
        raise self.error


def replace_call(part: Any, name: str) -> FailingCall:
    fault = FailingCall(getattr(part, name))
    setattr(part, name, fault)
    return fault


@pytest.fixture
async def gateway(bots: Bots, store_url: str) -> AsyncIterator[Gateway]:
    made = bots.gateway(BOTS, DATABASE_URL=store_url)
    async with made.running(workers=False):
        yield made


async def post_result(gateway: Gateway, slug: str, body: bytes) -> int | str:
    """The status of the response, or the name of the error."""
    try:
        return (await post(gateway, slug, body)).status_code
    except (Exception, asyncio.CancelledError, UncaughtError) as error:
        return type(error).__name__


async def redeliver_and_check(
    bots: Bots, gateway: Gateway, slug: str, body: bytes, text: str
) -> None:
    """The first redelivery is handled, the second one is a duplicate."""
    before = bots.api.texts().count(text)
    wanted = {outcome: outcomes(gateway, slug, outcome) + 1 for outcome in ("handled", "duplicate")}
    for _ in range(2):
        assert await post_result(gateway, slug, body) == 200
        assert bots.api.texts().count(text) == before + 1, text
    assert {outcome: outcomes(gateway, slug, outcome) for outcome in wanted} == wanted


def outcomes(gateway: Gateway, slug: str, outcome: str) -> float:
    return gateway.counters.value("gateway_updates_total", bot=slug, outcome=outcome)


def numbered(failures: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Each kind of failure with a number for its update, its chat and its user."""
    return enumerate(failures, start=100)


@pytest.mark.parametrize("slug", ["inline", "back"])
async def test_g1_an_update_whose_handler_failed_is_handled_when_redelivered(
    bots: Bots, gateway: Gateway, slug: str
) -> None:
    fault = replace_call(gateway.runtimes[slug].handler, "answer")
    for number, kind in numbered(FAILURES):
        body = update(number, kind, chat=number)
        fault.error, fault.met = FAILURES[kind], 0
        first = await post_result(gateway, slug, body)
        assert (first == 200) == (kind in OUTCOMES and slug == "inline"), kind
        assert fault.met == 1
        fault.error = None
        await redeliver_and_check(bots, gateway, slug, body, kind)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_g1_an_update_whose_send_failed_is_sent_when_redelivered(
    bots: Bots, gateway: Gateway, after: bool
) -> None:
    """Before Telegram had the message, or after it, when only the response was lost."""
    fault = replace_call(gateway.api, "call")
    fault.after = after
    failures = {**FAILURES, **TELEGRAM_FAILURES}
    for number, kind in numbered(failures):
        body = update(number, kind, chat=number)
        fault.error, fault.met = failures[kind], 0
        assert await post_result(gateway, "back", body) != 200, kind
        assert fault.met > 0
        fault.error = None
        if kind == "flood":
            await asyncio.sleep(0.2)
        await redeliver_and_check(bots, gateway, "back", body, kind)


async def test_g1_a_session_that_could_not_be_read_is_read_when_redelivered(
    bots: Bots, gateway: Gateway
) -> None:
    fault = replace_call(gateway.storage, "session_until")
    for number, kind in numbered(FAILURES):
        who = {"chat": number, "user": number}
        login = update(number, f"/auth {AUTH_SECRET}", **who)
        assert await post_result(gateway, "access", login) == 200
        body = update(number, kind, **who)
        fault.error, fault.met = FAILURES[kind], 0
        assert await post_result(gateway, "echo", body) != 200, kind
        assert fault.met == 1
        fault.error = None
        await redeliver_and_check(bots, gateway, "echo", body, kind)


async def test_g1_send_limits_that_cannot_be_read_do_not_block(bots: Bots, store_url: str) -> None:
    gateway = bots.gateway(BOTS, DATABASE_URL=store_url)
    assert gateway.forge is not None
    with frozen(gateway.forge) as time:
        async with gateway.running(workers=False):
            fault = replace_call(gateway.storage, "acquire")
            for number, kind in numbered(FAILURES):
                time.advance(STORE_RETRY_S)
                body = update(number, kind, chat=number)
                fault.error, fault.met = FAILURES[kind], 0
                first = await post_result(gateway, "inline", body)
                assert fault.met == 1, kind
                if isinstance(fault.error, Exception):
                    assert first == 200, kind
                    assert bots.api.texts().count(kind) == 1
                    # The store is not called again for STORE_RETRY_S.
                    assert await post_result(gateway, "inline", update(number + 50, kind)) == 200
                    assert fault.met == 1
                else:
                    fault.error = None
                    await redeliver_and_check(bots, gateway, "inline", body, kind)


@pytest.mark.parametrize("step", ["wrong_codes", "start_session"])
async def test_g1_a_failed_login_is_repeated_when_redelivered(
    bots: Bots, gateway: Gateway, step: str
) -> None:
    fault = replace_call(gateway.storage, step)
    kinds = [kind for kind in FAILURES if kind not in OUTCOMES]
    for number, kind in numbered(kinds):
        login = update(number, f"/auth {AUTH_SECRET}", chat=number, user=number)
        fault.error, fault.met = FAILURES[kind], 0
        assert await post_result(gateway, "access", login) != 200, kind
        assert fault.met == 1
        fault.error = None
        for _ in range(2):
            assert await post_result(gateway, "access", login) == 200
    assert gateway.forge is not None
    await gateway.forge.drain()
    assert bots.api.texts() == ["You are logged in for 24 h."] * len(kinds)


async def test_g1_an_update_in_progress_is_not_a_duplicate(bots: Bots, gateway: Gateway) -> None:
    """Telegram redelivers while the first request is still running, however that one ends."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    handler = gateway.runtimes["inline"].handler
    whole = handler.answer
    failing = [True, False]

    async def slow(*given: Any) -> Any:
        begun.set()
        await go_on.wait()
        if failing.pop(0):
            raise sqlite3.OperationalError("disk I/O error")
        return await whole(*given)

    handler.answer = slow  # type: ignore[method-assign]
    for ends in (503, 200):
        begun.clear()
        go_on.clear()
        first = asyncio.create_task(post_result(gateway, "inline", update(1, "hello")))
        await begun.wait()
        meanwhile = await post(gateway, "inline", update(1, "hello"))
        assert (meanwhile.status_code, meanwhile.headers["retry-after"]) == (503, "5")
        go_on.set()
        assert await first == ends
    assert await post_result(gateway, "inline", update(1, "hello")) == 200
    assert bots.api.texts() == ["hello"]
    assert failing == []


async def test_g1_an_update_is_not_lost_whenever_its_request_is_cancelled(
    bots: Bots, gateway: Gateway
) -> None:
    """Cancel the request after every possible number of event loop iterations."""
    assert await post_result(gateway, "access", update(1, f"/auth {AUTH_SECRET}")) == 200
    cancelled = answered_first = 0
    for turns in range(0, 300, 12):
        text, number = f"after {turns}", turns + 10
        body = update(number, text, chat=number)
        task = asyncio.create_task(gateway.receiver.receive(gateway.runtimes["echo"], body))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        ended = await asyncio.gather(task, return_exceptions=True)
        cancelled += isinstance(ended[0], asyncio.CancelledError)
        answered_first += text in bots.api.texts()
        for _ in range(2):
            assert await post_result(gateway, "echo", body) == 200
        # Twice if the request was cancelled between Telegram's response and mark_done.
        assert bots.api.texts().count(text) in (1, 2)
    assert cancelled > 3
    assert answered_first < 25


async def test_g1_a_failed_prompt_is_sent_when_redelivered(bots: Bots, gateway: Gateway) -> None:
    fault = replace_call(gateway.api, "call")
    fault.error = RuntimeError("a bug")
    assert await post_result(gateway, "echo", update(1, "hello")) == 503
    fault.error = None
    assert await post_result(gateway, "echo", update(1, "hello")) == 200
    assert len(bots.api.texts()) == 1
    assert bots.api.texts()[0].startswith("Please open a session")
