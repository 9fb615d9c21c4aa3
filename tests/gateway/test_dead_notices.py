"""One notice per dead update, also when workers are killed.

The first worker is killed with SIGKILL at the named moment; two others recover its jobs.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs import JobStatus
from telegram_gateway.gateway import Gateway
from tests.gateway.backend import Backend, backend
from tests.gateway.conftest import Bots, post, update
from tests.gateway.fake_api import fake_api, until

MOMENTS = {
    "before-the-death-is-written": ("before", "update.", "dead"),
    "after-the-death-is-written": ("after", "update.", "dead"),
    "after-the-notice-is-written": ("after", "notice.", "done"),
}
TERMINAL = (JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED)


@pytest.fixture
async def bots(tmp_path: Path, store_url: str) -> AsyncIterator[Bots]:
    async with fake_api() as api:
        yield Bots(api, tmp_path, store_url)


def yaml(back: Backend) -> str:
    target = f"{{url: '{back.url}', network: private}}"
    return f"bots: {{back: {{handler: http, async: true, requireAuth: false, http: {target}}}}}"


async def run_killed_worker(bots: Bots, text: str, moment: tuple[str, ...], root: Path) -> None:
    """Run a worker process until it is killed at that moment."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.gateway.killed_at_commit",
        *moment,
        cwd=root,
        env={**os.environ, **bots.environment(text, LEASE="2s")},
        stdout=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60):
            assert await process.wait() == -9
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def all_terminal(gateway: Gateway) -> bool:
    assert gateway.forge is not None
    store = await gateway.forge.aready()
    counts = await store.metrics.counts()
    return all(count.status in TERMINAL for count in counts if count.jobs)


@pytest.mark.processes
@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
async def test_each_dead_update_has_one_notice_despite_kills(
    bots: Bots, moment: tuple[str, ...], project_root: Path
) -> None:
    async with backend() as back:
        back.say(422)
        text = yaml(back)
        one, two = bots.gateway(text), bots.gateway(text)
        async with one.running(workers=False):
            for number in range(3):
                assert (await post(one, "back", update(number, chat=number + 1))).status_code == 200
            await run_killed_worker(bots, text, moment, project_root)
        one = bots.gateway(text)
        async with one.running(), two.running():
            await until(lambda: len(bots.api.texts()) >= 3, 60)
            async with asyncio.timeout(60):
                while not await all_terminal(one):
                    await asyncio.sleep(0.05)
    chats = [said["chat_id"] for _, method, said in bots.api.calls if method == "sendMessage"]
    assert sorted(chats) == [1, 2, 3]
