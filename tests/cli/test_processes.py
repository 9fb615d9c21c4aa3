"""The main paths with real processes: worker, enqueue, show, retry; reload; the demo."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import httpx
import psutil
import pytest

from forge_jobs.backends.url import open_store
from forge_jobs.core.job import NewJob
from forge_jobs.core.selection import Filter, Selection
from forge_jobs.ops.actions import JobActions
from tests.cli.shell import TIMEOUT_S, Shell, stop

pytestmark = pytest.mark.processes


def test_a_job_from_the_shell_through_a_worker_and_back(shell: Shell) -> None:
    with shell.running("worker", "sample_app:forge", "--processes", "2") as worker:
        sent = shell.ok("enqueue", "send", '{"to": "a@b.c"}', "--queue", "mail").strip()
        refused = shell.ok("enqueue", "refuse", '{"to": "x@y.z"}', "--queue", "mail").strip()
        shell.wait_for(sent, "done")
        done = shell.data("jobs", "show", sent)
        assert done["result"] == "sent to a@b.c"
        assert [line["message"] for line in done["logs"]] == ["sending"]
        shell.wait_for(refused, "dead")
        assert "no such mailbox: x@y.z" in shell.ok("jobs", "show", refused)
        stats = shell.data("stats")
        assert (stats["counts"]["done"], stats["counts"]["dead"]) == (1, 1)
        assert len(stats["workers"]) == 2

        # A worker has published the queue of the kind.
        again = shell.ok("enqueue", "send", '{"to": "d@e.f"}').strip()
        assert shell.wait_for(again, "done").queue == "mail"

        shell.ok("queues", "pause", "mail")
        shell.ok("jobs", "retry", refused)
        waiting = shell.data("jobs", "show", refused)
        assert (waiting["status"], waiting["why"][0]["code"]) == ("pending", "paused")
        shell.ok("queues", "resume", "mail")
        assert shell.wait_for(refused, "dead").attempts == 1
        assert stop(worker) == 0
    assert shell.data("workers") == {"workers": []}


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["sample_app:forge", "--queues", "a b"], 2, "queue 'a b'"),
        (["sample_app:forge", "--queues", "mail:many"], 2, "name:slots"),
        (["sample_app:forge", "--processes", "0"], 2, "--processes 0"),
        (["sample_app:forge", "--processes", "x"], 2, "--processes"),
        (["sample_app:forge", "--lease", "soon"], 2, "--lease"),
        (["sample_app:forge", "--log-format", "xml"], 2, "--log-format"),
        (["sample_app:forge", "--health-port", "70000"], 2, "--health-port"),
        (["sample_app:forge", "--nonsense"], 2, "--nonsense"),
        ([], 2, "APP"),
        (["sample_app.py"], 2, "pkg.module:object"),
        (["nowhere:forge"], 1, "no module 'nowhere'"),
        (["sample_app:fogre"], 1, "did you mean sample_app:forge"),
    ],
)
def test_a_worker_that_cannot_start_prints_the_reason(
    shell: Shell, words: list[str], code: int, complaint: str
) -> None:
    done = shell.forge("worker", *words)
    assert done.returncode == code, done.stderr
    assert complaint in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_parent_and_worker_do_not_import_terminal_libraries(shell: Shell) -> None:
    with shell.running("worker", "sample_app:forge", "--log-format", "json") as worker:
        job = shell.ok("enqueue", "loaded", "--queue", "mail").strip()
        in_worker = set(json.loads(shell.wait_for(job, "done").result or b"[]"))
        assert stop(worker, signal.SIGINT) == 0
    code = (
        "import sys\n"
        "from forge_jobs.cli.main import main\n"
        "try:\n    main(['worker', 'wrong.py'])\n"
        "except SystemExit:\n    print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "wrong.py" in done.stderr
    in_parent = set(done.stdout.split())
    assert "forge_jobs" in in_worker & in_parent
    assert not {"typer", "rich", "click"} & in_worker
    assert not {"typer", "rich", "click", "msgspec", "sqlite3"} & in_parent


def test_a_long_bulk_action_in_a_terminal_confirms_and_shows_progress(shell: Shell) -> None:
    async def fill() -> None:
        store = open_store(shell.url)
        await store.open()
        await store.jobs.enqueue([NewJob(kind="send", queue="mail") for _ in range(1_200)])
        acted = await JobActions(store, actor="test").cancel(Selection(filter=Filter(queue="mail")))
        assert acted.changed == 1_200
        await store.close()

    asyncio.run(fill())
    ours, theirs = os.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "forge_jobs", "jobs", "retry", "--queue", "mail"],
        env={**shell.environment, "TERM": "xterm"},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    os.write(ours, b"y\n")
    out, _ = done.communicate(timeout=TIMEOUT_S)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # the other end is closed and everything was read
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    assert done.returncode == 0, said
    assert out == "1,200 jobs back in line.\n"
    assert b"Retry 1,200 jobs? [y/N]" in said
    assert b"1200/1200" in said


def test_dev_restarts_the_worker_when_a_file_changes(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    with shell.running("dev", "sample_app:forge", "--port", str(port)) as dev:
        job = shell.ok("enqueue", "send", '{"to": "a"}', "--queue", "mail").strip()
        assert shell.wait_for(job, "done").result == b'"sent to a"'
        listed = httpx.get(f"http://127.0.0.1:{port}/api/jobs", timeout=TIMEOUT_S).json()
        assert [row["id"] for row in listed["rows"]] == [job]
        source = shell.folder / "sample_app.py"
        source.write_text(source.read_text().replace("sent to", "carried to"))
        deadline = time.monotonic() + TIMEOUT_S
        result: bytes | None = None
        while result != b'"carried to b"':
            assert time.monotonic() < deadline, result
            job = shell.ok("enqueue", "send", '{"to": "b"}', "--queue", "mail").strip()
            result = shell.wait_for(job, "done").result
        workers = psutil.Process(dev.pid).children(recursive=True)
        assert stop(dev, signal.SIGINT) == 0
    _, alive = psutil.wait_procs(workers, timeout=TIMEOUT_S)
    assert not alive


def test_a_killed_dev_leaves_no_worker_behind(shell: Shell) -> None:
    with shell.running("dev", "sample_app:forge") as dev:
        job = shell.ok("enqueue", "send", '{"to": "a"}', "--queue", "mail").strip()
        shell.wait_for(job, "done")
        workers = psutil.Process(dev.pid).children(recursive=True)
        assert workers
        dev.kill()
        _, alive = psutil.wait_procs(workers, timeout=TIMEOUT_S)
        assert not alive


def test_the_demo_stops_after_its_time_and_prints_a_summary(shell: Shell) -> None:
    before = set(os.listdir(shell.folder))
    for seconds in (5, 20, 45):
        done = shell.forge("demo", "--seconds", str(seconds))
        assert done.returncode == 0, done.stderr
        # On a busy machine its workers need longer than that to start.
        if "workers 2" in done.stdout:
            break
    processed = re.search(r"Processed (\d+) of (\d+) jobs in (\d+) s", done.stdout)
    assert processed is not None, done.stdout
    assert int(processed[1]) > 20
    assert seconds <= int(processed[3]) <= seconds + 15
    assert max(map(len, done.stdout.splitlines()[1:])) <= 80
    assert "workers 2" in done.stdout
    assert "Mission Control" in done.stdout
    assert set(os.listdir(shell.folder)) == before


def test_the_demo_stops_on_a_signal_and_keeps_a_named_file(shell: Shell) -> None:
    kept = shell.folder / "kept.db"
    with shell.running("demo", "--file", str(kept)) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "workers 2" in line:
                break
        assert stop(demo, signal.SIGINT) == 0
        farewell = demo.stdout.read()
    assert "Processed" in farewell
    assert f"forge web --url sqlite:///{kept}" in farewell
    assert shell.ok("workers", "--url", f"sqlite:///{kept}").startswith("No worker is running")
    counts = shell.data("stats", "--url", f"sqlite:///{kept}")["counts"]
    assert counts["running"] == 0
