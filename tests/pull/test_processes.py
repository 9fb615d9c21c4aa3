"""Several scripts, and scripts that are killed, stopped or forked; nothing else is running."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forge_jobs import JobQueue, Refused
from forge_jobs.pull import Job, JobStatus

SCRIPT = Path(__file__).with_name("script.py")
DEADLINE_S = 60.0

pytestmark = pytest.mark.processes
on_disk = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
in_a_file = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@contextmanager
def started(*role: object) -> Iterator["subprocess.Popen[str]"]:
    script = subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, role)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield script
    finally:
        script.kill()
        script.communicate()


def line(script: "subprocess.Popen[str]") -> str:
    assert script.stdout is not None
    return script.stdout.readline().strip()


def dequeue_soon(queue: JobQueue) -> Job:
    """The next job, within the deadline."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        job = queue.dequeue()
        if job is not None:
            return job
        time.sleep(0.05)
    raise AssertionError("no job came back")


@in_a_file
def test_eight_processes_complete_each_job_exactly_once(url: str) -> None:
    # A thousand each are worked off in ``make storm``.
    each = 100
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "eight", url, str(each)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    told = Counter(done.stdout.split())
    assert len(told) == 8 * each
    assert set(told.values()) == {1}
    with JobQueue.open(url) as queue:
        assert queue.counts() == {
            "pending": 0, "running": 0, "failed": 0, "completed": 8 * each, "dead": 0,
        }  # fmt: skip
        assert queue.access.run(lambda store: store.processes.all()) == []


@on_disk
def test_a_killed_script_gives_its_job_to_the_next_dequeue(url: str) -> None:
    with JobQueue.open(url) as queue:
        job_id = queue.enqueue("work", max_attempts=3)
        with started("hold", url, "1s") as script:
            assert line(script) == f"{job_id} 1"
            held = queue.get(job_id)
            assert held is not None
            assert held.status is JobStatus.RUNNING
        job = dequeue_soon(queue)
        assert (job.id, job.attempts) == (job_id, 2)
        queue.complete(job)
        assert queue.counts()["completed"] == 1


@in_a_file
def test_a_file_shows_at_once_that_a_script_was_killed(url: str) -> None:
    with JobQueue.open(url) as queue:
        job_id = queue.enqueue("work")
        with started("hold", url, "1h") as script:
            assert line(script) == f"{job_id} 1"
        job = queue.dequeue()
        assert job is not None
        assert (job.id, job.attempts) == (job_id, 2)


@on_disk
def test_a_stopped_script_wakes_up_too_late(url: str) -> None:
    with JobQueue.open(url) as queue:
        queue.enqueue("work")
        with started("hold_and_complete", url, "1s") as holder:
            job_id = line(holder).split()[0]
            os.kill(holder.pid, signal.SIGSTOP)
            job = dequeue_soon(queue)
            assert (job.id, job.attempts) == (job_id, 2)
            queue.complete(job, "from the second")
            os.kill(holder.pid, signal.SIGCONT)
            told, _ = holder.communicate("\n", timeout=DEADLINE_S)
            assert told.split() == ["lost"]
        done = queue.get(job_id)
        assert done is not None
        assert (done.status, done.result) == (JobStatus.COMPLETED, "from the second")


@in_a_file
@pytest.mark.parametrize("role", ["poison", "walk_out"])
def test_a_job_that_ends_its_script_is_dead_after_its_attempts(url: str, role: str) -> None:
    with JobQueue.open(url) as queue:
        job_id = queue.enqueue("work", max_attempts=2)
        said = []
        for _ in range(3):
            with started(role, url) as script:
                said.append(line(script))
                script.wait(DEADLINE_S)
        assert said == ["1", "2", "nothing"]
        job = queue.get(job_id)
        assert job is not None
        assert (job.status, job.attempts) == (JobStatus.DEAD, 2)


@on_disk
def test_a_forked_child_goes_on_with_a_queue_of_its_own(url: str) -> None:
    with JobQueue.open(url) as queue:
        queue.enqueue_many("work", ["parent", "child"])
        mine = queue.dequeue()
        assert mine is not None

        def child() -> None:
            other = queue.dequeue()
            assert other is not None
            assert other.payload == "child"
            assert other.owner != mine.owner
            queue.complete(other, "by the child")
            # A job that was handed over: the child has the same claim.
            queue.complete(mine, "by the child")

        assert in_child(child) == 0
        assert queue.counts()["completed"] == 2
        with pytest.raises(Refused):
            queue.complete(mine, "by the parent")
        queue.enqueue("work")
        assert queue.dequeue() is not None


def in_child(work: "object") -> int:
    with warnings.catch_warnings():
        # Forking with threads is what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()  # type: ignore[operator]
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_workers_on_postgres_are_woken_and_keep_their_leases(url: str) -> None:
    done, stop = threading.Event(), threading.Event()

    def handler(job: Job) -> str:
        if job.payload == "long":
            time.sleep(4)
            done.set()
        return "ok"

    with JobQueue.open(url) as queue:
        pool = threading.Thread(
            target=lambda: queue.work_pool(2, handler, poll="1h", lease="3s", stop=stop)
        )
        pool.start()
        try:
            queue.enqueue_many("work", ["short"] * 20)
            job_id = queue.enqueue("work", "long")
            assert done.wait(DEADLINE_S)
            end = time.monotonic() + DEADLINE_S
            while queue.counts()["completed"] < 21:
                assert time.monotonic() < end
                time.sleep(0.05)
        finally:
            stop.set()
            pool.join(DEADLINE_S)
        long = queue.get(job_id)
        assert long is not None
        assert (long.status, long.attempts) == (JobStatus.COMPLETED, 1)


@in_a_file
def test_the_command_line_sees_the_jobs_of_a_script(url: str) -> None:
    with JobQueue.open(url, "images") as queue:
        job_id = queue.enqueue("resize", {"path": "a.png"})
        assert queue.dequeue() is not None
        shown = subprocess.run(
            [sys.executable, "-m", "forge_jobs", "jobs", "list", "--url", url, "--json"],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
    assert job_id in shown.stdout
    assert '"images"' in shown.stdout
    assert '"running"' in shown.stdout
