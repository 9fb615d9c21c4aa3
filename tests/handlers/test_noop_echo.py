"""The sample handler: sleeps, echoes, fails, throttles."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forge_jobs import NOOP_ECHO_KIND, Dead, Failed, Forge, NoopEcho, Throttled
from forge_jobs.kit.clock import SYSTEM_CLOCK
from tests.handlers.conftest import HandlerHarness


async def test_it_returns_its_payload(harness: HandlerHarness) -> None:
    payload = {"sleep_ms": 0, "anything": ["else"]}
    assert await harness.run(NoopEcho(), payload) == payload
    assert await harness.run(NoopEcho(), None) is None


async def test_fail_takes_precedence_over_throttle(harness: HandlerHarness) -> None:
    handler = NoopEcho()
    assert isinstance(await harness.run(handler, {"sleep_ms": 0, "fail": True}), Failed)
    both = {"sleep_ms": 0, "fail": True, "throttle_ms": 500}
    assert isinstance(await harness.run(handler, both), Failed)


async def test_it_throttles_once(harness: HandlerHarness) -> None:
    handler, payload = NoopEcho(), {"sleep_ms": 0, "throttle_ms": 60_000}
    outcome = await harness.run(handler, payload)
    assert isinstance(outcome, Throttled)
    assert outcome.retry_after_s == 60
    old = harness.context(enqueued_at=SYSTEM_CLOCK.now() - 61_000_000)
    assert await handler.run(old, payload) == payload


@pytest.mark.parametrize("payload", [[1], {"sleep_ms": "long"}, {"fail": 3}])
async def test_a_wrong_payload_is_dead(harness: HandlerHarness, payload: Any) -> None:
    outcome = await harness.run(NoopEcho(), payload)
    assert isinstance(outcome, Dead)
    assert "the payload is wrong" in outcome.message


async def test_registered_with_forge_it_runs_in_its_queue() -> None:
    async with Forge("memory://") as forge:
        forge.register(NoopEcho(), queue="try", timeout="10s")
        job = await forge.aenqueue(NOOP_ECHO_KIND, {"sleep_ms": 1})
        report = await forge.drain()
        assert report.done == 1
        record = await (await forge.aready()).jobs.get(job.id)
        assert record is not None
        assert record.queue == "try"
        assert await job.aresult(timeout=60) == {"sleep_ms": 1}


def test_the_documented_examples_run(project_root: Path) -> None:
    page = (project_root / "docs" / "handlers.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    subprocess.run([sys.executable, "-c", code], cwd=project_root, check=True, timeout=60)
