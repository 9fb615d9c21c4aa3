"""Tests of the export: the file, and its removal a day later."""

import os

import pytest
from data_export import FOLDER, export, forge, remove

from forge_jobs import testing

os.environ["FORGE_URL"] = "memory://"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_file_is_there_for_a_day():
    with testing.frozen(forge) as time:
        job = export.enqueue("ada", 3)
        forge.drain().run()
        name = job.result(timeout=0)
        assert (FOLDER / name).read_text().split() == ["ada,0", "ada,1", "ada,2"]
        time.advance("23h")
        forge.drain().run()
        assert (FOLDER / name).exists()
        time.advance("2h")
        forge.drain().run()
        assert list(FOLDER.iterdir()) == []
    testing.assert_enqueued(forge, remove, {"name": name}, status="done")


def test_a_second_click_is_the_same_job():
    chosen = export.using(dedupe_key="eve")
    first, second = chosen.enqueue("eve", 3), chosen.enqueue("eve", 3)
    assert second.duplicate
    assert first.id == second.id
