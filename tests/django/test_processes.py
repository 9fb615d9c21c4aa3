"""Workers of the test project as real processes: killed, cut from their server, checked."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forge_jobs import Forge
from tests.django.conftest import MakeProject
from tests.django.databases import Project
from tests.postgres.server import PrivateServer

LEASE_S = 2.0


@contextlib.contextmanager
def running(project: Project, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A command that is ended with its children."""
    process = project.start(*arguments)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> float:
    """The seconds until a condition holds."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, "this took too long"
        time.sleep(0.1)
    return time.monotonic() - begun


def shell(project: Project, code: str) -> str:
    """What a piece of code prints last, in the project."""
    lines = project.manage("shell", "--verbosity", "0", "--command", code).splitlines()
    return lines[-1] if lines else ""


@pytest.mark.processes
def test_a_killed_worker_loses_no_task_where_the_peer_does(
    project: MakeProject, tmp_path: Path
) -> None:
    made = project("sqlite", newest=True, TEST_PEER="1")
    made.manage("migrate", "--run-syncdb", "--verbosity", "0")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ids = json.loads(
        shell(
            made,
            "import json; from django.tasks import task; from shop import tasks;"
            "from django.tasks.base import Task;"
            "peer = Task(func=tasks.sleep_once.func, backend='peer');"
            f"print(json.dumps([str(tasks.sleep_once.enqueue({str(ours)!r}).id),"
            f" str(peer.enqueue({str(theirs)!r}).id)]))",
        )
    )
    with (
        running(made, "forge", "worker", "--lease", f"{LEASE_S}s"),
        running(made, "db_worker", "--backend", "peer", "--no-startup-delay") as peer,
    ):
        wait_for(lambda: ours.exists() and theirs.exists() and ours.read_text() != "")
        wait_for(lambda: theirs.read_text() != "")
        os.kill(int(ours.read_text()), signal.SIGKILL)
        os.kill(int(theirs.read_text()), signal.SIGKILL)
        peer.wait(30)
        # Its operator starts another one.
        with running(made, "db_worker", "--backend", "peer", "--no-startup-delay"):
            states = f"""
import time
from django.tasks import task_backends
mine, other = [
    task_backends[alias].get_result(one) for alias, one in zip(("default", "peer"), {ids!r})
]
begun = time.monotonic()
while not mine.is_finished and time.monotonic() < begun + {LEASE_S + 5}:
    time.sleep(0.1)
    mine.refresh()
time.sleep(1)
other.refresh()
print(mine.status, mine.attempts, mine._return_value, other.status)
"""
            assert shell(made, states) == "SUCCESSFUL 2 again RUNNING"


@pytest.mark.processes
def test_no_task_dies_of_cut_connections(project: MakeProject, postgres: PrivateServer) -> None:
    made = project("postgres")
    # Connections that are kept are those that can be cut between two jobs.
    made = Project(made.python, {**made.database, "CONN_MAX_AGE": None}, made.variables)
    made.manage("migrate", "--run-syncdb", "--verbosity", "0")
    name = made.database["NAME"]
    enqueue = (
        "from shop import tasks; from shop.models import Order;"
        "pk = Order.objects.create(number=1).pk;"
        "[tasks.touch.enqueue(pk) for _ in range({count})]"
    )

    def ended() -> str:
        """How many jobs ended how, after how many attempts."""
        how = "SELECT count(*), min(status), max(status), max(attempts) FROM forge.history"
        return postgres.sql(how, database=name).strip()

    with running(made, "forge", "worker"):
        shell(made, enqueue.format(count=50))
        wait_for(lambda: ended() == "50|done|done|1")
        cut = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            f"WHERE datname = '{name}' AND pid <> pg_backend_pid()"
        )
        assert int(postgres.sql(cut)) >= 2
        shell(made, enqueue.format(count=200))
        # Not one attempt failed: connections are asked before they are used.
        wait_for(lambda: ended().startswith("250|"))
        assert ended() == "250|done|done|1"


@pytest.mark.processes
def test_manage_py_has_the_commands_of_forge(project: MakeProject) -> None:
    made = project("sqlite")
    made.manage("migrate", "--run-syncdb", "--verbosity", "0")
    code = "from shop import tasks; tasks.add.enqueue(1, 2); tasks.count_orders.enqueue()"
    shell(made, code)
    listed = json.loads(made.manage("forge", "jobs", "list", "--json"))
    assert sorted(job["kind"] for job in listed["jobs"]) == [
        "shop.tasks.add",
        "shop.tasks.count_orders",
    ]
    with running(made, "forge", "worker"), Forge(f"sqlite:///{made.database['NAME']}") as forge:
        wait_for(lambda: forge.jobs(status="done").count() == 2)
    assert "integrity" in made.manage("forge", "doctor", check=False)
    assert "Example" in made.manage("forge", "worker", "--help")


def test_checks_find_what_is_wrong(project: MakeProject) -> None:
    options = {"database": "orders", "quues": {}, "defaults": {"max_attempts": 0}}
    wrong = project("sqlite", TEST_OPTIONS=json.dumps(options)).manage("check", check=False)
    assert "(forge_jobs.E001)" in wrong
    assert "Did you mean 'queues'?" in wrong
    assert "max_attempts=0" in wrong
    assert "'orders', which DATABASES does not have" in wrong


def test_checks_find_a_queue_without_a_worker(project: MakeProject) -> None:
    options = {"queues": {"default": 5}, "url": "sqlite:////srv/elsewhere.db"}
    made = project("sqlite", TEST_OPTIONS=json.dumps(options))
    database = {**made.database, "OPTIONS": {}}
    told = Project(made.python, database, made.variables).manage("check")
    assert "No worker serves the queue 'mail' of the task shop.tasks.send" in told
    assert "(forge_jobs.W002)" in told
