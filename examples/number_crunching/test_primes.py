"""Tests of the counting: by a plain call, and a run that goes on from what was saved."""

import os
from pathlib import Path

import pytest
from primes import count_primes, forge, primes_below

os.environ["FORGE_URL"] = "memory://"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_plain_call_counts_and_leaves_no_file():
    assert primes_below(100) == count_primes(0, 100) == 25
    assert list(Path().iterdir()) == []


def test_a_run_goes_on_from_what_was_saved():
    job = primes_below.enqueue(100)
    Path(f"primes-{job.id}.txt").write_text("90 24")
    forge.drain().run()
    assert job.result(timeout=30) == 25
