"""U13: a worker without ``--queues`` serves the queues of its tasks."""

import logging
import re
from pathlib import Path

import pytest

from forge_jobs import Forge, NoQueues
from tests.cli.shell import Shell, stop

APP = """
from forge_jobs import Forge

forge = Forge()


@forge.task(queue="mail")
def send() -> str:
    return "sent"


@forge.task(queue="video")
def encode() -> None: ...


@forge.task
def other() -> None: ...
"""


def two_queues() -> Forge:
    forge = Forge("memory://")

    @forge.task(queue="mail")
    def send() -> None: ...

    @forge.task(queue="video")
    def encode() -> None: ...

    return forge


async def _served(forge: Forge, **options: int) -> tuple[str, ...]:
    async with forge.worker(**options) as handle:  # type: ignore[arg-type]
        (process,) = await handle.storage.processes.all()
        return process.queues


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORGE_QUEUES", raising=False)


async def test_u13_the_queues_of_the_tasks_are_the_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    forge = two_queues()
    with caplog.at_level(logging.INFO, "forge_jobs.worker"):
        assert await _served(forge, slots=3) == ("mail", "video")
    assert "serving mail:3, video:3: the queues of the registered tasks" in caplog.messages
    await forge.aclose()


async def test_u13_what_is_declared_still_wins(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forge = two_queues()
    forge.queue("declared", slots=2)
    with caplog.at_level(logging.INFO, "forge_jobs.worker"):
        assert await _served(forge) == ("declared",)
        monkeypatch.setenv("FORGE_QUEUES", "env:2")
        assert await _served(forge) == ("env",)
    assert "registered tasks" not in caplog.text
    await forge.aclose()


async def test_u13_a_worker_without_a_task_warns(caplog: pytest.LogCaptureFixture) -> None:
    forge = Forge("memory://")
    with pytest.raises(NoQueues, match=r"no task and no queue.*queues=\['mail'\]"):
        await forge.worker().__aenter__()
    with caplog.at_level(logging.WARNING, "forge_jobs.worker"):
        async with forge.worker(queues=["mail"]):
            pass
    assert "this worker has no task: jobs of mail wait for another one" in caplog.text
    await forge.aclose()


@pytest.mark.processes
def test_u13_forge_worker_without_queues(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    shell = Shell(tmp_path)
    job_id = shell.ok("enqueue", "send", "{}", "--queue", "mail").strip()
    with shell.running("worker", "shop:forge") as process:
        shell.wait_for(job_id, "done")
        assert stop(process) == 0
        assert process.stdout is not None
        log = process.stdout.read()
    assert "serving mail:10, video:10, default:10: the queues of the registered tasks" in log


@pytest.mark.processes
def test_u13_the_remedy_of_the_command_names_its_option(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("from forge_jobs import Forge\n\nforge = Forge()\n")
    refused = Shell(tmp_path).forge("worker", "bare:forge")
    assert refused.returncode == 1
    said = re.sub(r"\s+", " ", refused.stderr + refused.stdout)
    assert "bare:forge has no task and no queue to serve" in said
    assert "--queues mail" in said
    assert "queues=[" not in said
