"""Detection of changed source files."""

import os
from pathlib import Path

from forge_jobs.cli.file_changes import changed, snapshot


def test_new_changed_and_removed_sources_are_detected(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    for name in ("kept.py", "pkg/edited.py", "removed.py", "notes.txt"):
        (tmp_path / name).write_text("one")
    before = snapshot(tmp_path)
    assert changed(before, snapshot(tmp_path)) == []
    (tmp_path / "pkg/edited.py").write_text("three")
    (tmp_path / "removed.py").unlink()
    (tmp_path / "forge.toml").write_text("")
    (tmp_path / "notes.txt").write_text("three")
    names = [os.path.relpath(path, tmp_path) for path in changed(before, snapshot(tmp_path))]
    assert names == ["forge.toml", "pkg/edited.py", "removed.py"]


def test_environments_caches_and_hidden_folders_are_ignored(tmp_path: Path) -> None:
    for folder in (".git", "__pycache__", "node_modules", "env/lib"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.py").write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    assert snapshot(tmp_path) == {}
