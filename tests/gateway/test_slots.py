"""WORKERS decides the slots of a bot's queues, unless an operator changed them (G4)."""

import io
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from forge_jobs import Forge, QueueChange
from telegram_gateway.gateway import Gateway
from telegram_gateway.masking import configure_logging
from tests.gateway.conftest import Bots
from tests.gateway.fake_api import fake_api

ECHO = "bots: {echo: {handler: echo, async: true, requireAuth: false}}"


@pytest.fixture
async def bots(tmp_path: Path, store_url: str) -> AsyncIterator[Bots]:
    async with fake_api() as api:
        yield Bots(api, tmp_path, store_url)


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    root, before = logging.getLogger(), logging.getLogger().level
    handlers = list(root.handlers)
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(before)


async def slots_after_start(gateway: Gateway, *, operator: int | None = None) -> dict[str, int]:
    """The slots after a start; then an operator changes those of the updates."""
    async with gateway.running():
        assert gateway.forge is not None
        store = await gateway.forge.aready()
        found = {queue.name: queue.slots for queue in await store.queues.all()}
        if operator is not None:
            await store.queues.change("updates.echo", QueueChange(slots=operator))
    return found


async def test_g4_workers_decides_the_slots_at_every_start(bots: Bots) -> None:
    for workers in ("4", "9", "2"):
        found = await slots_after_start(bots.gateway(ECHO, WORKERS=workers))
        assert found == {"updates.echo": int(workers), "sends.echo": int(workers)}
    assert await slots_after_start(bots.gateway(ECHO)) == {"updates.echo": 4, "sends.echo": 4}


async def test_g4_what_an_operator_set_is_kept_and_said_at_start(
    bots: Bots, output: io.StringIO
) -> None:
    await slots_after_start(bots.gateway(ECHO, WORKERS="4"), operator=7)
    gateway = bots.gateway(ECHO, WORKERS="9")
    configure_logging(output, gateway.mask, level="info", as_json=False)
    found = await slots_after_start(gateway, operator=9)
    assert found == {"updates.echo": 7, "sends.echo": 9}
    shown = output.getvalue()
    assert "each queue runs 9 jobs at a time, in all processes together (WORKERS)" in shown
    assert "queue updates.echo keeps the 7 slots that an operator set" in shown
    assert "queue sends.echo keeps" not in shown
    # The operator gave the queue back by setting it to what WORKERS says.
    await slots_after_start(bots.gateway(ECHO, WORKERS="9"))
    found = await slots_after_start(bots.gateway(ECHO, WORKERS="3"))
    assert found == {"updates.echo": 3, "sends.echo": 3}


@pytest.mark.parametrize(("workers", "expected"), [("", 6), ("8", 8)], ids=["default", "given"])
async def test_g4_after_the_upgrade_only_a_given_workers_replaces_the_slots(
    bots: Bots, workers: str, expected: int
) -> None:
    forge = Forge(bots.url)
    store = await forge.aready()
    await store.queues.ensure("updates.echo", slots=6)
    await forge.aclose()
    found = await slots_after_start(bots.gateway(ECHO, WORKERS=workers))
    assert found["updates.echo"] == expected
