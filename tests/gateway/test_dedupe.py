"""An update is answered once, by bot id and update id alone (G9)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs import Forge, JobStatus
from forge_jobs.core.selection import Filter
from telegram_gateway.gateway import Gateway
from telegram_gateway.queueing import DEDUPE_S
from telegram_gateway.update import read_update
from tests.gateway.backend import Backend, backend
from tests.gateway.conftest import TOKEN, Bots, post, update
from tests.gateway.fake_api import fake_api

ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"
TOKEN_1 = TOKEN.format(number=101)


@pytest.fixture
async def bots(tmp_path: Path, store_url: str) -> AsyncIterator[Bots]:
    async with fake_api() as api:
        yield Bots(api, tmp_path, store_url)


@pytest.fixture
async def back() -> AsyncIterator[Backend]:
    async with backend() as service:
        service.say(200, b'{"text": "from the service"}')
        yield service


def http_bot(back: Backend, slug: str = "echo") -> str:
    target = f"{{url: '{back.url}', network: private}}"
    settings = f"{{handler: http, async: true, requireAuth: false, http: {target}}}"
    return f"bots: {{{slug}: {settings}}}"


async def receive(gateway: Gateway, slug: str, *numbers: int) -> None:
    async with gateway.running(workers=False):
        for number in numbers:
            assert (await post(gateway, slug, update(number))).is_success
        assert gateway.forge is not None
        await gateway.forge.drain()


async def store_as_release_0_1(bots: Bots, kind: str, number: int, *, run: bool) -> None:
    """Store an update as release 0.1 did: its kind names the handler, its key is the same."""
    forge = Forge(bots.url)

    @forge.task(kind=kind, queue="updates.echo")
    async def task(raw: str) -> None:
        return

    async with forge.worker({"updates.echo": 1} if run else {"other": 1}):
        key = f"telegram:101:{number}"
        job = await task.using(dedupe_key=key, dedupe_for=DEDUPE_S).aenqueue(
            read_update(update(number)).to_base64()
        )
        if run:
            await job.aresult(timeout=30)
    await forge.aclose()


async def test_g9_another_handler_does_not_answer_the_same_update_again(
    bots: Bots, back: Backend
) -> None:
    await receive(bots.gateway(ECHO), "echo", 1)
    await receive(bots.gateway(http_bot(back)), "echo", 1, 2)
    await receive(bots.gateway(ECHO), "echo", 1, 2, 3)
    assert bots.api.texts() == ["hi", "from the service", "hi"]
    assert len(back.got) == 1


async def test_g9_another_slug_does_not_answer_the_same_update_again(
    bots: Bots, back: Backend
) -> None:
    await receive(bots.gateway(ECHO), "echo", 1)
    renamed = {"BOT_BACK_TOKEN": TOKEN_1}
    await receive(bots.gateway(http_bot(back, "back"), **renamed), "back", 1)
    # Another bot takes over the slug and gets a kind of its own.
    two = http_bot(back, "back")[:-1] + f", {ECHO.removeprefix('bots: {')}"
    other = {**renamed, "BOT_ECHO_TOKEN": TOKEN.format(number=109)}
    await receive(bots.gateway(two, **other), "echo", 1)
    assert bots.api.texts() == ["hi", "hi"]
    assert back.got == []


@pytest.mark.parametrize("changed", [False, True], ids=["same-handler", "other-handler"])
async def test_g9_keys_of_release_0_1_count_after_the_upgrade(
    bots: Bots, back: Backend, changed: bool
) -> None:
    await store_as_release_0_1(bots, "update.echo.echo", 1, run=True)
    await receive(bots.gateway(http_bot(back) if changed else ECHO), "echo", 1)
    assert bots.api.texts() == []
    await receive(bots.gateway(http_bot(back) if changed else ECHO), "echo", 2)
    assert len(bots.api.texts()) == 1


async def test_g9_updates_that_wait_for_a_former_handler_are_run_by_the_new_one(
    bots: Bots, back: Backend
) -> None:
    await store_as_release_0_1(bots, "update.echo.echo", 1, run=False)
    await store_as_release_0_1(bots, "update.http.echo", 2, run=False)
    gateway = bots.gateway(http_bot(back))
    await receive(gateway, "echo")
    assert len(back.got) == 2
    gateway = bots.gateway(http_bot(back))
    async with gateway.running(workers=False):
        assert gateway.forge is not None
        store = await gateway.forge.aready()
        page = await store.jobs.page(Filter(queue="updates.echo"), limit=10)
    assert {job.status for job in page.jobs} == {JobStatus.DONE}
