"""The worker parent with fake workers: starts, restarts, missing heartbeats, signals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest


class Driver:
    """A parent process under test."""

    def __init__(self, root: Path, folder: Path, act: str, processes: int, **times: float) -> None:
        self.start_log = folder / "start_log"
        self.start_log.touch()
        self.log = folder / "log"
        times_given = [str(times.get("grace_s", 5.0)), str(times.get("lease_s", 10.0))]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "tests.children.parent_driver",
                    act, str(self.start_log), str(processes), *times_given,
                ],
                cwd=root, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def starts(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.start_log.read_text().splitlines()]

    def log_text(self) -> str:
        return self.log.read_text()

    def until(self, what: Callable[[], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, self.log_text()
            time.sleep(0.02)

    def until_up(self, count: int) -> None:
        self.until(lambda: self.log_text().count("is up") >= count)

    def exit_code(self, seconds: float = 30) -> int:
        return self.process.wait(seconds)

    def no_worker_lives(self, seconds: float = 30) -> None:
        pids = [start["pid"] for start in self.starts()]
        self.until(lambda: not any(map(psutil.pid_exists, pids)), seconds)


Run = Callable[..., Driver]


@pytest.fixture
def run(project_root: Path, tmp_path: Path) -> Iterator[Run]:
    drivers: list[Driver] = []

    def start(act: str, processes: int = 1, **times: float) -> Driver:
        drivers.append(Driver(project_root, tmp_path, act, processes, **times))
        return drivers[-1]

    yield start
    for driver in drivers:
        if driver.process.poll() is None:
            os.killpg(driver.process.pid, signal.SIGKILL)
            driver.process.wait()


def test_starts_all_and_drains_on_sigterm(run: Run) -> None:
    driver = run("serve", 3)
    driver.until_up(3)
    assert sorted(start["number"] for start in driver.starts()) == [1, 2, 3]
    driver.process.terminate()
    assert driver.exit_code() == 0
    driver.no_worker_lives()


def test_imports_no_library(run: Run) -> None:
    driver = run("serve")
    driver.until_up(1)
    assert "heavy imports: []" in driver.log_text()


def test_only_the_parent_handles_ctrl_c(run: Run) -> None:
    driver = run("slow-drain", 2)
    driver.until_up(2)
    os.killpg(driver.process.pid, signal.SIGINT)
    # Workers that handled the signal themselves would have exited without the slow drain.
    assert driver.exit_code() == 0
    assert "Traceback" not in driver.log_text()


def test_a_dead_worker_is_replaced_and_its_successor_gets_its_host_id(run: Run) -> None:
    driver = run("serve", 2)
    driver.until_up(2)
    victim = driver.starts()[0]
    os.kill(victim["pid"], signal.SIGKILL)
    driver.until_up(3)
    successor = driver.starts()[2]
    assert successor["number"] == victim["number"]
    assert successor["replaces"] == f"host-{victim['pid']}"
    assert "died: signal 9 (SIGKILL); next start in 0.1 s" in driver.log_text()


def test_restarts_back_off(run: Run) -> None:
    driver = run("serve")
    for times in range(1, 6):
        driver.until_up(times)
        os.kill(driver.starts()[-1]["pid"], signal.SIGKILL)
    driver.until_up(6)
    for wait in ("0.1", "0.2", "0.4", "0.8", "1.6"):
        assert f"next start in {wait} s" in driver.log_text()


def test_a_worker_that_exits_cleanly_is_restarted_at_once(run: Run) -> None:
    driver = run("polite")
    driver.until_up(1)
    psutil.Process(driver.starts()[0]["pid"]).terminate()
    driver.until_up(2)
    assert driver.starts()[1]["replaces"] is None
    assert "died" not in driver.log_text()


@pytest.mark.parametrize("processes", [1, 3])
def test_a_refusal_stops_the_parent_with_one_message(run: Run, processes: int) -> None:
    driver = run("refuse", processes)
    assert driver.exit_code(60) == 1
    assert driver.log_text().count("no module named 'nowhere'") == 1
    driver.no_worker_lives()


def test_workers_that_never_start_stop_the_parent(run: Run) -> None:
    driver = run("die-early")
    assert driver.exit_code(60) == 1
    assert "ended before it was up: exit code 3" in driver.log_text()
    assert len(driver.starts()) == 5


def test_a_silent_worker_is_killed_and_replaced(run: Run) -> None:
    driver = run("mute", lease_s=1.5)
    driver.until_up(2)
    assert "sent no heartbeat for" in driver.log_text()
    assert driver.starts()[1]["replaces"] == f"host-{driver.starts()[0]['pid']}"


def test_a_stopped_worker_is_killed_and_replaced(run: Run) -> None:
    driver = run("serve", lease_s=1.5)
    driver.until_up(1)
    os.kill(driver.starts()[0]["pid"], signal.SIGSTOP)
    driver.until_up(2)
    assert "sent no heartbeat for" in driver.log_text()


def test_silence_while_the_parent_was_suspended_is_ignored(run: Run) -> None:
    driver = run("serve", 2, lease_s=3)
    driver.until_up(2)
    os.killpg(driver.process.pid, signal.SIGSTOP)
    time.sleep(4)
    os.killpg(driver.process.pid, signal.SIGCONT)
    time.sleep(1.5)
    assert "no heartbeat" not in driver.log_text()
    assert len(driver.starts()) == 2
    driver.process.terminate()
    assert driver.exit_code() == 0


def test_workers_that_do_not_drain_are_killed_after_the_grace(run: Run) -> None:
    driver = run("stubborn", 2, grace_s=1)
    driver.until_up(2)
    began = time.monotonic()
    driver.process.terminate()
    assert driver.exit_code() == 1
    assert time.monotonic() - began >= 1
    driver.no_worker_lives()


def test_a_second_signal_kills_at_once(run: Run) -> None:
    driver = run("stubborn", 2, grace_s=30)
    driver.until_up(2)
    driver.process.terminate()
    driver.until(lambda: "stopping" in driver.log_text())
    driver.process.send_signal(signal.SIGINT)
    assert driver.exit_code() == 1
    driver.no_worker_lives()


def test_a_stop_while_workers_still_start_is_quick(run: Run) -> None:
    driver = run("slow-start", 2, grace_s=30)
    driver.until(lambda: len(driver.starts()) == 2)
    driver.process.terminate()
    assert driver.exit_code() == 0
    driver.no_worker_lives()


def test_workers_notice_the_death_of_their_parent(run: Run) -> None:
    driver = run("serve", 2)
    driver.until_up(2)
    driver.process.kill()
    driver.process.wait()
    driver.no_worker_lives()


def test_sighup_restarts_workers_one_by_one(run: Run) -> None:
    driver = run("slow-drain", 2)
    driver.until_up(2)
    driver.process.send_signal(signal.SIGHUP)
    driver.until_up(4)
    before, after = driver.starts()[:2], driver.starts()[2:]
    assert {start["pid"] for start in before}.isdisjoint(start["pid"] for start in after)
    assert [start["number"] for start in after] == [1, 2]
    # The second one is drained only after the first has its successor; each takes a second.
    assert after[1]["at"] - after[0]["at"] >= 1
    assert all(start["replaces"] is None for start in after)
    driver.process.terminate()
    assert driver.exit_code() == 0
