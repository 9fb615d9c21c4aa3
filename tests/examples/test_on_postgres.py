"""Some examples on Postgres: only FORGE_URL changes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs import Forge, testing
from tests.examples.commands import run
from tests.examples.test_scripts import EXACT
from tests.postgres.server import PrivateServer


@pytest.fixture(scope="module")
def url(postgres: PrivateServer) -> Iterator[str]:
    postgres.sql("CREATE DATABASE examples")
    yield postgres.url(database="examples")
    postgres.sql("DROP DATABASE examples WITH (FORCE)")


@pytest.mark.parametrize("name", ["results.py", "unique.py", "lanes.py"])
def test_it_prints_the_same(name: str, url: str, tmp_path: Path) -> None:
    assert run(name, tmp_path, FORGE_URL=url).out == EXACT[name]
    assert not list(tmp_path.iterdir()), "nothing went to a file"


def test_an_order_that_is_rolled_back_takes_its_job_along(url: str, tmp_path: Path) -> None:
    lines = run("transaction_postgres.py", tmp_path, FORGE_URL=url).lines
    assert lines == [
        "receipt for a book",
        "no yacht: too expensive",
        "receipt for a pen",
        "orders: book pen",
    ]
    with Forge(url) as forge:
        receipts = testing.assert_enqueued(forge, "send_receipt", status="done", times=2)
        assert [job.payload["item"] for job in receipts] == ["book", "pen"]


def test_the_pull_queue(url: str, tmp_path: Path) -> None:
    lines = run("pull_queue.py", tmp_path, FORGE_URL=url).lines
    assert lines[-1] == "pending 0, running 0, failed 0, completed 3, dead 1 (total 4)"
