"""A Telegram bot that reminds its users, though it is killed in between.

Run: python examples/telegram_bot/reminder_bot.py

With BOT_TOKEN it talks to Telegram until Ctrl-C; without, to a fake one on this machine.
"""

import asyncio
import json
import os
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from forge_jobs import BadDuration, Context, Dead, Forge, Retry, Throttled

forge = Forge()
TOKEN = os.environ.get("BOT_TOKEN", "")
BASE = os.environ.get("TELEGRAM_API_BASE", "https://api.telegram.org")


def call(method: str, **fields: object) -> Any:
    """One call of the Bot API."""
    headers = {"Content-Type": "application/json"}
    request = Request(f"{BASE}/bot{TOKEN}/{method}", json.dumps(fields).encode(), headers)
    try:
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)["result"]
    except HTTPError as error:
        refusal = json.load(error)
        wait = refusal.get("parameters", {}).get("retry_after")
        if wait is not None:  # flood control: nobody sends until then
            raise Throttled(retry_after=wait, scope="telegram") from None
        if error.code in (400, 403):  # the chat is gone, or the user blocked the bot
            raise Dead(refusal["description"]) from None
        raise


@forge.task(queue="send", max_attempts=20, retry=Retry(base="5s", max="5m"), scopes=["telegram"],
            rate="25/s")  # fmt: skip
def send(chat: int, text: str) -> None:
    call("sendMessage", chat_id=chat, text=text)


@forge.task(queue="updates", max_attempts=5)
def handle(chat: int, text: str, ctx: Context) -> None:
    """Messages of one chat are handled one after the other: see the lane below."""
    command, _, rest = text.partition(" ")
    wait, _, what = rest.partition(" ")
    if command != "/remind" or not what:
        ctx.on_done(send, chat, "write: /remind 10m tea")
        return
    try:
        later = send.using(delay=wait, tags=[f"chat:{chat}"], dedupe_key=f"reminder:{ctx.job.id}")
    except BadDuration:
        ctx.on_done(send, chat, f"{wait} is no time: write 10m, 2h or 1d")
        return
    later.enqueue(chat, what)  # its key makes a second run of this update harmless
    ctx.on_done(send, chat, f"in {wait}: {what}")


def take_updates(offset: int, *, wait_s: int) -> int:
    """Store what users wrote, once each; Telegram forgets it when it is asked for what follows."""
    for update in call("getUpdates", offset=offset, timeout=wait_s):
        message = update.get("message", {})
        if "text" in message:
            chat = message["chat"]["id"]
            chosen = handle.using(
                dedupe_key=str(update["update_id"]), dedupe_for="2d", lane=str(chat), order="strict"
            )
            chosen.enqueue(chat, message["text"])
        offset = update["update_id"] + 1
    return offset


async def serve() -> None:
    offset = 0
    async with forge.worker(["updates", "send"], signals=True):
        while True:
            offset = await asyncio.to_thread(take_updates, offset, wait_s=20)


async def demo() -> None:
    global BASE, TOKEN
    from telegram_gateway.fake import fake_telegram

    async with fake_telegram() as telegram:
        BASE, TOKEN = telegram.base, "4711:AAabcdefghijklmnopqrstuvwxyz0123456"
        bot = telegram.bot(TOKEN)
        for text in ("hello", "/remind 1s tea", "/remind soon tea"):
            telegram.say(bot, text)
        offset = await asyncio.to_thread(take_updates, 0, wait_s=0)
        await asyncio.to_thread(take_updates, offset, wait_s=0)
        async with forge.worker(["updates", "send"]):
            while len(bot.chat(7).received()) < 4:
                await asyncio.sleep(0.05)
        for entry in sorted(bot.chat(7).received(), key=lambda one: one.message["message_id"]):
            print(entry.message["text"])


if __name__ == "__main__":
    asyncio.run(serve() if TOKEN else demo())
