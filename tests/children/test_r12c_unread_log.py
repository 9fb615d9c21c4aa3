"""R12 c: a log that nobody reads stops neither the jobs nor the worker."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from forge_jobs import Forge
from forge_jobs.kit.log_stream import LogStream

# Each failing job writes a log line of its own: together far more than a pipe takes.
APP = """
from forge_jobs import Forge
forge = Forge("sqlite:///jobs.db")

@forge.task(queue="mail")
async def fail(text: str) -> None:
    raise RuntimeError(text * 100)

@forge.task(queue="mail")
async def write(note: str) -> None:
    open(note, "w").write("ran")
"""


def until(what: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_r12c_jobs_run_while_nobody_reads_the_log(tmp_path: Path, kind: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    if kind == "pipe":
        reading, writing = os.pipe()
    else:
        ends = socket.socketpair()
        reading, writing = (end.detach() for end in ends)
    worker = subprocess.Popen(
        [sys.executable, "-m", "forge_jobs", "worker", "app:forge", "--queues", "mail"],
        cwd=tmp_path,
        stdout=writing,
        stderr=writing,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(writing)
    try:
        with Forge(f"sqlite:///{tmp_path}/jobs.db") as forge:
            fail = [{"text": f"{number:010}"} for number in range(600)]
            for arguments in fail:
                forge.enqueue("fail", arguments, queue="mail")
            note = tmp_path / "note"
            forge.enqueue("write", {"note": str(note)}, queue="mail")
            until(note.exists)
        # Then somebody reads: the lines that were kept come, and whole.
        worker.terminate()
        assert worker.wait(60) == 0
        os.set_blocking(reading, False)
        read = b""
        while data := os.read(reading, 1 << 16):
            read += data
        lines = read.decode().splitlines()
        assert len(lines) > 20
        # A line begins with its time; those of a traceback follow it.
        first, whole = lines[0], [line for line in lines[:-1] if line.startswith("20")]
        assert first.startswith("20")
        assert all(" forge_jobs." in line for line in whole)
    finally:
        os.close(reading)
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


def test_r12c_what_does_not_fit_is_kept_then_dropped_and_counted() -> None:
    reading, writing = os.pipe()
    stream = LogStream(writing)
    line = "x" * 999 + "\n"
    for _ in range(3_000):
        stream.write(line)
    read = b""

    def read_more() -> bool:
        nonlocal read
        read += os.read(reading, 1 << 20)
        return read.count(b"\n") >= 1_000

    until(read_more)
    stream.write("the end\n")
    until(lambda: read_more() and b"the end\n" in read)
    lines = read.decode().splitlines()
    assert lines[-1] == "the end"
    dropped = int(lines[-2].split()[1])
    assert lines[-2] == f"forge: {dropped} log lines were dropped: nobody read the log"
    assert lines[:-2] == ["x" * 999] * (3_000 - dropped)
    os.close(reading)
    os.close(writing)


def test_r12c_a_log_whose_reader_is_gone_is_ignored() -> None:
    reading, writing = os.pipe()
    stream = LogStream(writing)
    os.close(reading)
    assert stream.write("nobody\n") == 7
    os.close(writing)
