"""``python -m rigs.storms.gateway_lives``: lives of the real gateway, one after the other.

This process holds the door's socket, so that Telegram finds it open between two lives, and forks a
child for each order (a JSON line on standard input); everything is imported once. The child serves
exactly like ``telegram-gateway serve``, with a wrapper around the one call at which it is to die.
It writes down which messages it began to send and which the database holds for sent.
"""

import asyncio
import gc
import json
import os
import signal
import socket
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Exchange, Exchanged, Verdict
from rigs.storms.gateway_polling import POLLING_STEPS
from rigs.storms.gateway_sabotage import SABOTAGES
from rigs.storms.gateway_steps import STEPS, STORES, Strike
from rigs.storms.history import History
from telegram_gateway import serving
from telegram_gateway.bot_api import BotApi
from telegram_gateway.config import load
from telegram_gateway.gateway import Gateway
from telegram_gateway.masking import configure_logging

# What a gateway imports when it needs it; here once, instead of in every life.
for _late in (
    "anyio._backends._asyncio", "asyncpg", "forge_jobs.backends.postgres.store",
    "forge_jobs.backends.sqlite.store", "forge_jobs.engine.runtime", "psycopg",
    "telegram_gateway.storage.postgres", "telegram_gateway.storage.sqlite", "uvicorn.lifespan.off",
    "uvicorn.protocols.websockets.auto",
):  # fmt: skip
    import_module(_late)


def main() -> None:
    """Until standard input ends."""
    receiver = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    _say(port=receiver.getsockname()[1])
    # What all lives share is not looked through again by each of them.
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _live(json.loads(line), receiver)
        _say(pid=pid)
        _, status = os.waitpid(pid, 0)
        _say(status=os.waitstatus_to_exitcode(status))


def _say(**said: Any) -> None:
    print(json.dumps(said), flush=True)


def _live(order: dict[str, Any], receiver: socket.socket) -> None:
    """Serve until SIGTERM, or until the step is reached. Never returns."""
    code = 1
    try:
        history = History(Path(order["folder"]) / f"life-{order['life']}.jsonl")
        history.write("born", life=order["life"], step=order["step"])
        _take_notes(history)
        if order["sabotage"] is not None:
            SABOTAGES[order["sabotage"]]()
        if order["step"] is not None:
            strike = Strike(history, order["step"], order["hits"], armed=order["armed"])
            (STEPS | POLLING_STEPS)[order["step"]].install(strike)

            def arm(*_: Any) -> None:
                strike.armed = True
                history.write("armed", step=order["step"])

            signal.signal(signal.SIGUSR1, arm)
        asyncio.run(_serve(order["environment"], receiver))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


async def _serve(environment: dict[str, str], receiver: socket.socket) -> None:
    settings, bots, _ = load(environment)
    gateway = Gateway(settings, bots)
    configure_logging(None, gateway.mask, level=settings.log_level, as_json=False)
    server: Any = serving._GatewayServer
    whole = server.serve

    async def serve_here(self: Any) -> None:
        await whole(self, sockets=[receiver])

    server.serve = serve_here
    # Whoever gave the orders is gone when its pipe ends; nobody would end this life then.
    asyncio.get_running_loop().add_reader(0, os.kill, os.getpid(), signal.SIGKILL)
    await serving.serve(gateway)


# ------------------------------------------------------------------------------- notes


def _take_notes(history: History) -> None:
    calls = BotApi.call

    async def call(self: Any, bot: Any, method: str, parameters: Any, **named: Any) -> Any:
        if method != "sendMessage":
            return await calls(self, bot, method, parameters, **named)
        label = label_of(bot.slug, parameters)
        history.write("sending", label=label)
        try:
            return await calls(self, bot, method, parameters, **named)
        except BaseException as error:
            history.write("unsent", label=label, error=repr(error))
            raise

    BotApi.call = call
    for store in STORES:
        _note_exchanges(store, history)


def _note_exchanges(store: Any, history: History) -> None:
    """Which messages a claim brought, and which of them the store then holds for sent."""
    whole = store.exchange
    held: dict[int, str] = {}

    async def exchange(self: Any, request: Exchange) -> Exchanged:
        answer: Exchanged = await whole(self, request)
        for end, verdict in zip(request.finish, answer.verdicts, strict=True):
            label = held.get(end.key)
            if label is None or verdict is Verdict.STALE:
                continue
            del held[end.key]
            if end.status in (JobStatus.DONE, JobStatus.DEAD):
                history.write("settled", label=label, status=str(end.status))
        for job in answer.claims:
            if job.kind.startswith("send."):
                said = json.loads(job.payload)
                label = label_of(job.kind.removeprefix("send."), said["parameters"])
                held[job.key] = label
                history.write("claimed", label=label, key=job.key)
        return answer

    store.exchange = exchange


def label_of(slug: str, parameters: dict[str, Any]) -> str:
    """A message by its bot, its chat and its text."""
    return f"{slug}/{parameters['chat_id']}/{parameters['text']}"


if __name__ == "__main__":
    main()
