"""Handlers in child processes: what they may do, how they end, and what becomes of the children."""

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
from tests.children.conftest import Bench
from tests.children.test_child_process import gone_within

_others: set[int] = set()


@pytest.fixture(autouse=True)
def _servers_of_other_tests() -> None:
    """A database server that other tests share is a child of this process, too."""
    _others.clear()
    _others.update(child.pid for child in psutil.Process().children())


def children() -> list[int]:
    return [child.pid for child in psutil.Process().children() if child.pid not in _others]


async def written(path: Path, seconds: float = 60) -> list[int]:
    """The numbers in a file that a handler writes, once they are there."""
    deadline = time.monotonic() + seconds
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, f"{path.name} was not written"
        await asyncio.sleep(0.02)
    return [int(word) for word in path.read_text().split()]


async def test_payload_and_result_travel_unchanged(bench: Bench) -> None:
    for value in (1, "zwölf ✓\n", {"a": [1, 2.5, None]}, "x" * 200_000):
        assert await bench.value("echo", value) == value
    ending = await bench.run("echo", None)
    assert isinstance(ending.outcome, Done)
    assert ending.result is None


async def test_context_knows_the_job(bench: Bench) -> None:
    run = bench.begin("describe", timeout_s=60)
    ending = await bench.ending(run)
    seen = json.loads(ending.result or b"{}")
    assert seen["id"] == run.id
    assert (seen["kind"], seen["queue"]) == ("describe", "video")
    assert (seen["attempts"], seen["max_attempts"]) == (2, 5)
    assert (seen["tags"], seen["host"], seen["argv"]) == (["vip"], "HOST", [])
    assert seen["cancelled"] is False
    assert 0 < seen["deadline"] - time.time() <= 61


async def test_progress_log_and_carried_jobs_come_back(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forge_jobs")
    run = bench.begin("speak")
    ending = await bench.ending(run)
    assert isinstance(ending.outcome, Done)
    assert run.notes is not None
    assert (run.notes.progress, run.notes.note) == (0.25, "a quarter")
    assert [(line.level, line.message) for line in run.notes.lines or []] == [
        ("info", "hello there"),
        ("warning", "careful"),
    ]
    assert [(job.kind, job.queue, job.payload) for job in run.successors or []] == [
        ("echo", "default", b'{"from":"speak"}')
    ]
    await bench.executor.close()
    logged = [record.getMessage() for record in caplog.records]
    assert logged.count("hello there") == 1
    assert any(line.endswith("printed by the handler") for line in logged)


async def test_output_is_bounded(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "forge_jobs.child")
    await bench.run("chatter", 20_000)
    await bench.executor.close()
    assert len(caplog.records) <= MAX_LINES + 1
    assert "cut" in caplog.records[-1].getMessage()


async def test_an_exception_is_told_with_its_causes(bench: Bench) -> None:
    ending = await bench.run("fail", "outer")
    assert isinstance(ending.outcome, Failed)
    assert ending.outcome.message == "RuntimeError: outer: KeyError: 'inner'"
    assert not ending.explicit


async def test_the_childs_own_retry_rule_decides(bench: Bench) -> None:
    ending = await bench.run("never_retry", "bad address")
    assert isinstance(ending.outcome, Dead)
    assert ending.outcome.message == "ValueError: bad address"


async def test_every_outcome_comes_back(bench: Bench) -> None:
    done = await bench.run("outcome", "done")
    assert (type(done.outcome), done.result, done.explicit) == (Done, b'{"ok":true}', True)
    failed = await bench.run("outcome", "failed")
    assert isinstance(failed.outcome, Failed)
    assert (failed.outcome.message, failed.explicit) == ("not now", True)
    dead = await bench.run("outcome", "dead")
    assert isinstance(dead.outcome, Dead)
    assert dead.outcome.message == "never"
    throttled = (await bench.run("outcome", "throttled")).outcome
    assert isinstance(throttled, Throttled)
    assert (throttled.retry_after_s, throttled.scope) == (30, "smtp")
    undeclared = (await bench.run("outcome", "elsewhere")).outcome
    assert isinstance(undeclared, Throttled)
    assert (undeclared.retry_after_s, undeclared.scope) == (None, None)
    snooze = (await bench.run("outcome", "snooze")).outcome
    assert isinstance(snooze, Snooze)
    assert snooze.delay_s == 60


async def test_results_that_cannot_be_stored_are_dead(bench: Bench) -> None:
    for kind, value in (("unstorable", None), ("big", 300_000)):
        ending = await bench.run(kind, value)
        assert isinstance(ending.outcome, Dead)
        assert ending.outcome.message.startswith("result")


async def test_sys_exit_fails_the_job_and_keeps_the_child(bench: Bench) -> None:
    before = await bench.value("pid")
    ending = await bench.run("leave", 3)
    assert isinstance(ending.outcome, Failed)
    assert ending.outcome.message == "SystemExit: 3"
    assert await bench.value("pid") == before


async def test_a_free_child_is_used_again(bench: Bench) -> None:
    pids = {await bench.value("pid") for _ in range(5)}
    assert len(pids) == 1
    assert len(children()) == 1


async def test_as_many_children_as_jobs_at_once(bench: Bench) -> None:
    runs = [bench.begin("nap", 0.5) for _ in range(3)]
    pids = {(await bench.ending(run)).result for run in runs}
    assert len(pids) == 3
    assert len(children()) == 3


async def test_coroutines_share_one_loop_per_child(bench: Bench) -> None:
    assert await bench.value("anap", 0.01) == await bench.value("anap", 0.01)


@pytest.mark.parametrize("settings", [EngineSettings(max_child_jobs=3)])
async def test_a_child_is_replaced_after_its_share_of_jobs(bench: Bench) -> None:
    pids = [await bench.value("pid") for _ in range(7)]
    assert len(set(pids[0:3])) == len(set(pids[3:6])) == 1
    assert len(set(pids)) == 3
    assert gone_within(pids[:6], 30)


@pytest.mark.parametrize("settings", [EngineSettings(child_idle_s=0.5)])
async def test_an_idle_child_is_let_go(bench: Bench) -> None:
    pid = await bench.value("pid")
    async with asyncio.timeout(60):
        while psutil.pid_exists(pid):
            await asyncio.sleep(0.02)
    assert await bench.value("pid") != pid


async def test_a_child_killed_while_idle_costs_nobody_anything(bench: Bench) -> None:
    pid = await bench.value("pid")
    os.kill(pid, signal.SIGKILL)
    assert await bench.value("echo", "still fine") == "still fine"


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize(
    ("how", "words"), [("exit", "exit code 1"), ("kill", "signal 9 (SIGKILL)")]
)
async def test_the_death_of_a_child_is_a_crash(
    bench: Bench, how: str, words: str, isolated: bool
) -> None:
    ending = await bench.run("die", how, isolated=isolated)
    assert isinstance(ending.outcome, Crashed)
    assert ending.outcome.message == f"child process died: {words}"
    assert await bench.value("echo", "next") == "next"


async def test_a_suspect_runs_alone(bench: Bench) -> None:
    warm = await bench.value("pid")
    first = await bench.value("pid", isolated=True)
    second = await bench.value("pid", isolated=True)
    assert len({warm, first, second}) == 3
    assert gone_within([first, second], 30)
    assert await bench.value("pid") == warm


@pytest.mark.parametrize("why", [StopReason.TIMEOUT, StopReason.CANCEL, StopReason.SHUTDOWN])
async def test_stopping_kills_the_child_with_its_family(
    bench: Bench, tmp_path: Path, why: StopReason
) -> None:
    path = tmp_path / "pids"
    run = bench.begin("with_family", str(path))
    pids = await written(path)
    bench.stop(run, why)
    ending = await bench.ending(run)
    assert not isinstance(ending.outcome, Crashed | Done)
    assert gone_within(pids, 30)
    assert Path(f"{path}.tidied").exists()


async def test_coroutines_tidy_up_when_stopped(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    run = bench.begin("awaits_with_care", str(path))
    pids = await written(path)
    bench.stop(run, StopReason.CANCEL)
    await bench.ending(run)
    assert gone_within(pids, 30)
    assert Path(f"{path}.tidied").exists()


@pytest.mark.parametrize("kind", ["hold_lock", "stubborn"])
async def test_what_does_not_listen_is_killed(bench: Bench, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "pid"
    run = bench.begin(kind, str(path))
    pids = await written(path)
    bench.stop(run, StopReason.TIMEOUT)
    await bench.ending(run)
    assert gone_within(pids, 30)


async def test_a_stop_before_the_child_is_up_runs_nothing(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    run = bench.begin("with_family", str(path))
    bench.stop(run, StopReason.CANCEL)
    ending = await bench.ending(run)
    assert not isinstance(ending.outcome, Done)
    assert not path.exists()


async def test_a_finished_run_is_not_interrupted(bench: Bench) -> None:
    run = bench.begin("pid")
    ending = await bench.ending(run)
    bench.stop(run, StopReason.CANCEL)
    await asyncio.sleep(0.1)
    assert await bench.value("pid") == json.loads(ending.result or b"0")


async def test_close_kills_everything_and_reports_nothing(bench: Bench, tmp_path: Path) -> None:
    await bench.value("pid")
    path = tmp_path / "pids"
    run = bench.begin("with_family", str(path))
    pids = await written(path) + children()
    await bench.executor.close()
    assert gone_within(pids, 30)
    with pytest.raises(TimeoutError):
        await bench.ending(run, seconds=0.1)


async def test_an_unknown_kind_says_what_to_do(bench: Bench) -> None:
    ending = await bench.run("nobody_knows")
    assert isinstance(ending.outcome, Failed)
    assert "knows kind 'nobody_knows'" in ending.outcome.message


async def test_a_module_that_does_not_import_is_named(bench: Bench) -> None:
    target = ChildTarget(module="tests.children.nowhere", file=None, kind="echo")
    ending = await bench.run("echo", 1, target=target)
    assert isinstance(ending.outcome, Failed)
    assert "ModuleNotFoundError: No module named 'tests.children.nowhere'" in ending.outcome.message


async def test_a_task_of_a_script_is_found_in_its_file(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tests.children.sample_app import Shop\n"
        "mine = Shop()\n"
        "@mine.task\n"
        "def twice(value, ctx): return [value * 2, __name__]\n"
        "if __name__ == '__main__': raise SystemExit('this part is not for children')\n"
    )
    target = ChildTarget(module=None, file=str(script), kind="twice")
    assert await bench.value("twice", 4, target=target) == [8, "__forge_main__"]
