"""The examples that end by themselves, each in an empty folder on a SQLite file."""

import ast
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from forge_jobs import Forge, testing
from tests.examples.commands import EXAMPLES, run

EXACT = {
    "results.py": """\
not yet; the job stays stored and goes on
Quote(item='pen', cents=500)
Quote(item='ink', cents=250)
failed: LookupError: we do not sell unicorns
Quote(item='pad', cents=1000)
""",
    "retries.py": """\
charged Ada in attempt 3
   attempt 1 failed: ConnectionError: the bank does not answer
   attempt 2 failed: ConnectionError: the bank does not answer
Grace is dead: ticket for Grace: ValueError: no card on file (1 attempts)
   attempt 1 failed: ValueError: no card on file
Linus is dead: ticket for Linus: ConnectionError: the bank does not answer (3 attempts)
   attempt 1 failed: ConnectionError: the bank does not answer
   attempt 2 failed: ConnectionError: the bank does not answer
   attempt 3 failed: ConnectionError: the bank does not answer
""",
    "unique.py": """\
same job while it waits: True True
welcomed Ada
same job after its end: True
reindex jobs for 5 changes: 1
""",
    "lanes.py": """\
serial: one three two
strict: one two three
""",
    "chaining.py": """\
Ada: thank you for 2 items
warehouse: pack ink
warehouse: pack pen
""",
    "steps.py": """\
draft on queues, approved by Ada
looks: 3
['car-7 cancelled', 'flight-7 cancelled']
loaded: 60
stored once each: True
take an umbrella
""",
    "cpu.py": """\
1229 primes, in another process: True
the event loop was free: True
dead: timed out after 3 s
""",
}


@pytest.mark.parametrize("name", EXACT)
def test_it_prints_what_it_shows(name: str, tmp_path: Path) -> None:
    assert run(name, tmp_path).out == EXACT[name]


def test_it_can_be_repeated_on_the_same_file(tmp_path: Path) -> None:
    """Even where dedupe keys of the first run are still taken."""
    for _ in range(2):
        assert run("unique.py", tmp_path).out == EXACT["unique.py"]


def test_a_schedule_fires_once_per_second_and_is_gone_afterwards(tmp_path: Path) -> None:
    lines = run("cron.py", tmp_path).lines
    ticks = [line.removeprefix("report for ") for line in lines if line.startswith("report for ")]
    fired = [line.split()[1] for line in lines if line.startswith("fired ")]
    assert len(set(ticks)) == 3
    assert ticks == sorted(ticks)
    assert [tick.replace("Z", "+00:00") for tick in ticks] == fired[:3]
    with Forge(f"sqlite:///{tmp_path}/forge.db") as forge:
        assert forge.schedules.list() == ()


def test_an_order_that_is_rolled_back_takes_its_job_along(tmp_path: Path) -> None:
    lines = run("transaction_sqlite.py", tmp_path).lines
    assert lines == [
        "receipt for a book",
        "no yacht: too expensive",
        "receipt for a pen",
        "orders: book pen",
    ]
    connection = sqlite3.connect(tmp_path / "shop.db")
    orders = [item for (item,) in connection.execute("SELECT item FROM orders")]
    connection.close()
    with Forge(f"sqlite:///{tmp_path}/shop.db") as forge:
        receipts = testing.assert_enqueued(forge, "send_receipt", status="done", times=2)
        assert [job.payload["item"] for job in receipts] == orders == ["book", "pen"]


def test_limits_hold(tmp_path: Path) -> None:
    peaks, texts, cities = run("limits.py", tmp_path).lines
    most = ast.literal_eval(peaks.removeprefix("most at once: "))
    assert most["a.example"] <= 2
    assert most["b.example"] <= 2
    assert 2 <= most["total"] <= 4
    # Nine starts at 4/s, four of which may come at once, then four calls at 2/s.
    for line, pattern in (
        (texts, r"9 texts within (\d+\.\d) s"),
        (cities, r"4 cities within (\d+\.\d) s, attempts of each: \{1\}"),
    ):
        found = re.fullmatch(pattern, line)
        assert found is not None, line
        assert float(found.group(1)) >= 1


def test_a_job_is_watched_and_cancelled_from_another_thread(tmp_path: Path) -> None:
    lines = run("progress.py", tmp_path).lines
    assert lines[0] == "exported 40 rows"
    assert re.fullmatch(r"progress: \d\d%, \d+ of 1000 rows", lines[1])
    assert lines[2:5] == ["cancel accepted: True", "cancelled: the customer left", "log:"]
    assert lines[5:8] == ["  wrote 20 rows", "  wrote 40 rows", "  wrote 60 rows"]
    assert "  wrote 1000 rows" not in lines


def test_hooks_see_every_enqueue_and_every_run(tmp_path: Path) -> None:
    out = run("hooks.py", tmp_path).out
    for tenant, number in (("acme", 7), ("umbrella", 8)):
        assert re.search(rf"^stored invoice of {tenant} as [0-9A-Z]{{26}}$", out, re.M)
        assert re.search(rf"^invoice of {tenant} took \d+\.\d{{4}} s$", out, re.M)
        assert f"invoice {number} of {tenant}\n" in out


def test_programs_in_three_languages(tmp_path: Path) -> None:
    printed = dict(line.split(maxsplit=1) for line in run("children/pool.py", tmp_path).lines)
    node = printed.pop("resize_js", "{'width': 320, 'height': 240}")  # only where there is Node
    assert node == "{'width': 320, 'height': 240}"
    assert printed == {"resize": "{'width': 320, 'height': 240}", "shout": "HELLO FROM A SHELL"}


def test_the_pull_queue_gives_up_on_the_broken_picture(tmp_path: Path) -> None:
    *lines, summary = run("pull_queue.py", tmp_path).lines
    assert lines[0] == "resized urgent.png"
    assert lines[-1] == "gave up on broken.png"
    assert summary == "pending 0, running 0, failed 0, completed 3, dead 1 (total 4)"


def test_tests_of_ones_own_tasks_pass(tmp_path: Path) -> None:
    assert "5 passed" in run("testing/test_shop.py", tmp_path).out
    assert not list(tmp_path.glob("*.db")), "its tests need no file"


def test_the_quickstart_runs_and_its_jobs_are_stored(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "quickstart" / "hello.py", tmp_path)
    out = run("quickstart/hello.py", tmp_path).out
    assert out == "Hello, Ada!\nHello, Grace!\nHello, Linus!\n"
    with Forge(f"sqlite:///{tmp_path}/forge.db") as forge:
        testing.assert_enqueued(forge, "greet", status="done", times=3)


def test_the_postgres_example_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="set FORGE_URL to the address of a Postgres database"):
        run("transaction_postgres.py", tmp_path)
