"""The child executor: contexts, outcomes, crashes, stops and reuse of child processes."""

import asyncio
import json
import logging
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from forge_jobs.config import EngineSettings
from forge_jobs.core.outcome import Crashed, Dead, Done, Failed, Snooze, Throttled
from forge_jobs.engine.running.registry import ChildTarget
from forge_jobs.engine.running.run import MAX_LINES, StopReason
from tests.children.conftest import ExecutorHarness
from tests.children.test_child_process import gone_within

_others: set[int] = set()


@pytest.fixture(autouse=True)
def _database_servers() -> None:
    """A database server that other tests share is a child of this process as well."""
    _others.clear()
    _others.update(child.pid for child in psutil.Process().children())


def children() -> list[int]:
    return [child.pid for child in psutil.Process().children() if child.pid not in _others]


async def written(path: Path, seconds: float = 60) -> list[int]:
    """Wait for the numbers that a handler writes to a file."""
    deadline = time.monotonic() + seconds
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, f"{path.name} was not written"
        await asyncio.sleep(0.02)
    return [int(word) for word in path.read_text().split()]


async def test_payload_and_result_travel_unchanged(harness: ExecutorHarness) -> None:
    for value in (1, "zwölf ✓\n", {"a": [1, 2.5, None]}, "x" * 200_000):
        assert await harness.value("echo", value) == value
    run_outcome = await harness.run("echo", None)
    assert isinstance(run_outcome.outcome, Done)
    assert run_outcome.result is None


async def test_the_context_describes_the_job(harness: ExecutorHarness) -> None:
    run = harness.begin("describe", timeout_s=60)
    run_outcome = await harness.run_outcome(run)
    seen = json.loads(run_outcome.result or b"{}")
    assert seen["id"] == run.id
    assert (seen["kind"], seen["queue"]) == ("describe", "video")
    assert (seen["attempts"], seen["max_attempts"]) == (2, 5)
    assert (seen["tags"], seen["host"], seen["argv"]) == (["vip"], "HOST", [])
    assert seen["cancelled"] is False
    assert 0 < seen["deadline"] - time.time() <= 61


async def test_progress_log_and_carried_jobs_are_recorded(
    harness: ExecutorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forge_jobs")
    run = harness.begin("report")
    run_outcome = await harness.run_outcome(run)
    assert isinstance(run_outcome.outcome, Done)
    assert run.notes is not None
    assert (run.notes.progress, run.notes.note) == (0.25, "a quarter")
    assert [(line.level, line.message) for line in run.notes.lines or []] == [
        ("info", "hello there"),
        ("warning", "careful"),
    ]
    assert [(job.kind, job.queue, job.payload) for job in run.successors or []] == [
        ("echo", "default", b'{"from":"report"}')
    ]
    await harness.executor.close()
    logged = [record.getMessage() for record in caplog.records]
    assert logged.count("hello there") == 1
    assert any(line.endswith("printed by the handler") for line in logged)


async def test_output_is_bounded(
    harness: ExecutorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forge_jobs.child")
    await harness.run("print_lines", 20_000)
    await harness.executor.close()
    assert len(caplog.records) <= MAX_LINES + 1
    assert "cut" in caplog.records[-1].getMessage()


async def test_an_exception_is_reported_with_its_causes(harness: ExecutorHarness) -> None:
    run_outcome = await harness.run("fail", "outer")
    assert isinstance(run_outcome.outcome, Failed)
    assert run_outcome.outcome.message == "RuntimeError: outer: KeyError: 'inner'"
    assert not run_outcome.explicit


async def test_the_childs_retry_rule_decides(harness: ExecutorHarness) -> None:
    run_outcome = await harness.run("never_retry", "bad address")
    assert isinstance(run_outcome.outcome, Dead)
    assert run_outcome.outcome.message == "ValueError: bad address"


async def test_every_outcome_is_reported(harness: ExecutorHarness) -> None:
    done = await harness.run("outcome", "done")
    assert (type(done.outcome), done.result, done.explicit) == (Done, b'{"ok":true}', True)
    failed = await harness.run("outcome", "failed")
    assert isinstance(failed.outcome, Failed)
    assert (failed.outcome.message, failed.explicit) == ("not now", True)
    dead = await harness.run("outcome", "dead")
    assert isinstance(dead.outcome, Dead)
    assert dead.outcome.message == "never"
    throttled = (await harness.run("outcome", "throttled")).outcome
    assert isinstance(throttled, Throttled)
    assert (throttled.retry_after_s, throttled.scope) == (30, "smtp")
    undeclared = (await harness.run("outcome", "elsewhere")).outcome
    assert isinstance(undeclared, Throttled)
    assert (undeclared.retry_after_s, undeclared.scope) == (None, None)
    snooze = (await harness.run("outcome", "snooze")).outcome
    assert isinstance(snooze, Snooze)
    assert snooze.delay_s == 60


async def test_results_that_cannot_be_stored_are_dead(harness: ExecutorHarness) -> None:
    for kind, value in (("unstorable", None), ("big", 300_000)):
        run_outcome = await harness.run(kind, value)
        assert isinstance(run_outcome.outcome, Dead)
        assert run_outcome.outcome.message.startswith("result")


async def test_sys_exit_fails_the_job_and_keeps_the_child(harness: ExecutorHarness) -> None:
    before = await harness.value("pid")
    run_outcome = await harness.run("sys_exit", 3)
    assert isinstance(run_outcome.outcome, Failed)
    assert run_outcome.outcome.message == "SystemExit: 3"
    assert await harness.value("pid") == before


async def test_an_idle_child_is_reused(harness: ExecutorHarness) -> None:
    pids = {await harness.value("pid") for _ in range(5)}
    assert len(pids) == 1
    assert len(children()) == 1


async def test_as_many_children_as_jobs_at_once(harness: ExecutorHarness) -> None:
    runs = [harness.begin("nap", 0.5) for _ in range(3)]
    pids = {(await harness.run_outcome(run)).result for run in runs}
    assert len(pids) == 3
    assert len(children()) == 3


async def test_coroutines_share_one_loop_per_child(harness: ExecutorHarness) -> None:
    assert await harness.value("anap", 0.01) == await harness.value("anap", 0.01)


@pytest.mark.parametrize("settings", [EngineSettings(max_child_jobs=3)])
async def test_a_child_is_replaced_after_max_child_jobs(harness: ExecutorHarness) -> None:
    pids = [await harness.value("pid") for _ in range(7)]
    assert len(set(pids[0:3])) == len(set(pids[3:6])) == 1
    assert len(set(pids)) == 3
    assert gone_within(pids[:6], 30)


@pytest.mark.parametrize("settings", [EngineSettings(child_idle_s=0.5)])
async def test_an_idle_child_is_shut_down_after_child_idle_s(harness: ExecutorHarness) -> None:
    pid = await harness.value("pid")
    async with asyncio.timeout(60):
        while psutil.pid_exists(pid):
            await asyncio.sleep(0.02)
    assert await harness.value("pid") != pid


async def test_a_child_killed_while_idle_fails_no_job(harness: ExecutorHarness) -> None:
    pid = await harness.value("pid")
    os.kill(pid, signal.SIGKILL)
    assert await harness.value("echo", "still fine") == "still fine"


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize(
    ("how", "words"), [("exit", "exit code 1"), ("kill", "signal 9 (SIGKILL)")]
)
async def test_the_death_of_a_child_is_recorded_as_a_crash(
    harness: ExecutorHarness, how: str, words: str, isolated: bool
) -> None:
    run_outcome = await harness.run("die", how, isolated=isolated)
    assert isinstance(run_outcome.outcome, Crashed)
    assert run_outcome.outcome.message == f"child process died: {words}"
    assert await harness.value("echo", "next") == "next"


async def test_an_isolated_run_has_a_child_of_its_own(harness: ExecutorHarness) -> None:
    warm = await harness.value("pid")
    first = await harness.value("pid", isolated=True)
    second = await harness.value("pid", isolated=True)
    assert len({warm, first, second}) == 3
    assert gone_within([first, second], 30)
    assert await harness.value("pid") == warm


@pytest.mark.parametrize("why", [StopReason.TIMEOUT, StopReason.CANCEL, StopReason.SHUTDOWN])
async def test_a_stop_kills_the_child_and_its_descendants(
    harness: ExecutorHarness, tmp_path: Path, why: StopReason
) -> None:
    path = tmp_path / "pids"
    run = harness.begin("starts_a_process", str(path))
    pids = await written(path)
    harness.stop(run, why)
    run_outcome = await harness.run_outcome(run)
    assert not isinstance(run_outcome.outcome, Crashed | Done)
    assert gone_within(pids, 30)
    assert Path(f"{path}.tidied").exists()


async def test_a_stop_runs_the_finally_blocks_of_coroutines(
    harness: ExecutorHarness, tmp_path: Path
) -> None:
    path = tmp_path / "pid"
    run = harness.begin("cleans_up", str(path))
    pids = await written(path)
    harness.stop(run, StopReason.CANCEL)
    await harness.run_outcome(run)
    assert gone_within(pids, 30)
    assert Path(f"{path}.tidied").exists()


@pytest.mark.parametrize("kind", ["hold_lock", "stubborn"])
async def test_a_handler_that_ignores_sigterm_is_killed(
    harness: ExecutorHarness, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "pid"
    run = harness.begin(kind, str(path))
    pids = await written(path)
    harness.stop(run, StopReason.TIMEOUT)
    await harness.run_outcome(run)
    assert gone_within(pids, 30)


async def test_a_stop_before_the_child_has_started_runs_nothing(
    harness: ExecutorHarness, tmp_path: Path
) -> None:
    path = tmp_path / "pids"
    run = harness.begin("starts_a_process", str(path))
    harness.stop(run, StopReason.CANCEL)
    run_outcome = await harness.run_outcome(run)
    assert not isinstance(run_outcome.outcome, Done)
    assert not path.exists()


async def test_a_finished_run_is_not_interrupted(harness: ExecutorHarness) -> None:
    run = harness.begin("pid")
    run_outcome = await harness.run_outcome(run)
    harness.stop(run, StopReason.CANCEL)
    await asyncio.sleep(0.1)
    assert await harness.value("pid") == json.loads(run_outcome.result or b"0")


async def test_close_kills_all_children_and_reports_nothing(
    harness: ExecutorHarness, tmp_path: Path
) -> None:
    await harness.value("pid")
    path = tmp_path / "pids"
    run = harness.begin("starts_a_process", str(path))
    pids = await written(path) + children()
    await harness.executor.close()
    assert gone_within(pids, 30)
    with pytest.raises(TimeoutError):
        await harness.run_outcome(run, seconds=0.1)


async def test_an_unknown_kind_says_what_to_do(harness: ExecutorHarness) -> None:
    run_outcome = await harness.run("nobody_knows")
    assert isinstance(run_outcome.outcome, Failed)
    assert "knows kind 'nobody_knows'" in run_outcome.outcome.message


async def test_a_module_that_does_not_import_is_named(harness: ExecutorHarness) -> None:
    target = ChildTarget(module="tests.children.nowhere", file=None, kind="echo")
    run_outcome = await harness.run("echo", 1, target=target)
    assert isinstance(run_outcome.outcome, Failed)
    assert (
        "ModuleNotFoundError: No module named 'tests.children.nowhere'"
        in run_outcome.outcome.message
    )


async def test_a_task_of_a_script_is_found_in_its_file(
    harness: ExecutorHarness, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tests.children.sample_app import Shop\n"
        "mine = Shop()\n"
        "@mine.task\n"
        "def twice(value, ctx): return [value * 2, __name__]\n"
        "if __name__ == '__main__': raise SystemExit('this part is not for children')\n"
    )
    target = ChildTarget(module=None, file=str(script), kind="twice")
    assert await harness.value("twice", 4, target=target) == [8, "__forge_main__"]
