"""``python -m rigs.storms.gateway_process``: runs real gateways, one after the other.

This process holds the listening socket, so that Telegram can connect between two gateways. It forks
a child per line of standard input (JSON); everything is imported once. The child serves like
``telegram-gateway serve``, with a wrapper around the one call at which it is killed. It records
which messages it started to send and which send jobs the database has finished.
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
from rigs.storms.gateway_steps import STEPS, STORES, KillPoint
from rigs.storms.history import History
from telegram_gateway import serving
from telegram_gateway.bot_api import BotApi
from telegram_gateway.config import load
from telegram_gateway.gateway import Gateway
from telegram_gateway.masking import configure_logging

# Modules that a gateway imports lazily; imported here once instead of in every child.
for _late in (
    "anyio._backends._asyncio", "asyncpg", "forge_jobs.backends.postgres.store",
    "forge_jobs.backends.sqlite.store", "forge_jobs.engine.runtime", "psycopg",
    "telegram_gateway.storage.postgres", "telegram_gateway.storage.sqlite", "uvicorn.lifespan.off",
    "uvicorn.protocols.websockets.auto",
):  # fmt: skip
    import_module(_late)


def main() -> None:
    """Fork one gateway per line of standard input."""
    receiver = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    _print_json(port=receiver.getsockname()[1])
    # Objects shared by all children are excluded from their garbage collection.
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _run_gateway(json.loads(line), receiver)
        _print_json(pid=pid)
        _, status = os.waitpid(pid, 0)
        _print_json(status=os.waitstatus_to_exitcode(status))


def _print_json(**said: Any) -> None:
    print(json.dumps(said), flush=True)


def _run_gateway(order: dict[str, Any], receiver: socket.socket) -> None:
    """Serve until SIGTERM, or until the step is reached. Never returns."""
    code = 1
    try:
        history = History(Path(order["folder"]) / f"gateway-{order['number']}.jsonl")
        history.write("started", number=order["number"], step=order["step"])
        _record_sends(history)
        if order["sabotage"] is not None:
            SABOTAGES[order["sabotage"]]()
        if order["step"] is not None:
            kill = KillPoint(history, order["step"], order["hits"], armed=order["armed"])
            (STEPS | POLLING_STEPS)[order["step"]].install(kill)

            def arm(*_: Any) -> None:
                kill.armed = True
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
    serving._bind = lambda settings: [receiver]
    # Standard input is closed when the rig has ended; then this process must end, too.
    asyncio.get_running_loop().add_reader(0, os.kill, os.getpid(), signal.SIGKILL)
    await serving.serve(gateway)


# ------------------------------------------------------------------------------- notes


def _record_sends(history: History) -> None:
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
        _record_exchanges(store, history)


def _record_exchanges(store: Any, history: History) -> None:
    """Record which messages were claimed, and which send jobs the store has finished."""
    original = store.exchange
    held: dict[int, str] = {}

    async def exchange(self: Any, request: Exchange) -> Exchanged:
        answer: Exchanged = await original(self, request)
        for end, verdict in zip(request.finish, answer.verdicts, strict=True):
            label = held.get(end.key)
            if label is None or verdict is Verdict.STALE:
                continue
            del held[end.key]
            if end.status in (JobStatus.DONE, JobStatus.DEAD):
                history.write("finished", label=label, status=str(end.status))
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
