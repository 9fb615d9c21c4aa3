"""Tests of the pipeline: a broken file stops it, and it goes on where it stopped."""

import os

import pytest
from etl import SOURCE, forge, nightly, totals

from forge_jobs import testing

os.environ["FORGE_URL"] = "memory://"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    SOURCE.mkdir()
    (SOURCE / "monday-a.csv").write_text("product,price\npen,1.50\n")


def test_a_plain_call_loads_the_files_of_the_day():
    assert nightly("monday") == {"pen": 150}


def test_only_the_broken_file_is_loaded_again():
    (SOURCE / "monday-b.csv").write_text("product,price\nink,free\n")
    with testing.frozen(forge) as time:
        job = nightly.enqueue("monday")
        forge.drain().run()
        assert job.refresh().status == "failed"
        (SOURCE / "monday-a.csv").unlink()  # it is loaded: nobody opens it again
        (SOURCE / "monday-b.csv").write_text("product,price\nink,4\n")
        time.advance("10m")
        forge.drain().run()
    assert job.result(timeout=0) == totals() == {"ink": 400, "pen": 150}
    assert list(testing.steps_of(job)) == [
        "list",
        "load[monday-a.csv]",
        "load[monday-b.csv]",
        "totals",
    ]
