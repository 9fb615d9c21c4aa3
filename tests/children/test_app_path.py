"""``pkg.module:object``: each mistake has a message of its own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs.cli.app_path import load_app
from forge_jobs.core.errors import BadAppPath


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # Another test of this process may have imported a module of such a name.
    _forget_modules()
    yield tmp_path
    _forget_modules()


def _forget_modules() -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] in ("shop", "broken", "nested"):
            del sys.modules[name]


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


FORGE = "from forge_jobs import Forge\nforge = Forge('memory://')\n"


@pytest.mark.parametrize("path", ["shop:forge", "shop", "shop:Box.forge"])
def test_finds_the_forge_object(folder: Path, path: str) -> None:
    write(folder, "shop.py", FORGE + "class Box:\n    forge = forge\nother = forge\n")
    assert load_app(path).handler("nothing") is None


def test_finds_it_in_a_package(folder: Path) -> None:
    write(folder, "nested/jobs.py", FORGE)
    assert load_app("nested.jobs:forge") is sys.modules["nested.jobs"].forge


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("shop:forge", "there is no module 'shop'"),
        ("shop.jobs:forge", "there is no module 'shop'"),
        ("nested.nowhere:forge", "there is no module 'nested.nowhere'"),
        ("./shop.py:forge", "write pkg.module:object"),
        (":forge", "write pkg.module:object"),
    ],
)
def test_a_missing_module_is_named(folder: Path, path: str, words: str) -> None:
    write(folder, "nested/__init__.py", "")
    with pytest.raises(BadAppPath, match=words):
        load_app(path)


def test_a_missing_name_lists_the_existing_ones(folder: Path) -> None:
    write(folder, "shop.py", FORGE)
    with pytest.raises(BadAppPath, match=r"shop has no 'frog'; did you mean shop:forge\?"):
        load_app("shop:frog")


def test_an_object_that_is_no_forge_is_refused(folder: Path) -> None:
    write(folder, "shop.py", "from forge_jobs import Forge\nforge = {}\ndef make(): pass\n")
    with pytest.raises(BadAppPath, match="is a dict, not a Forge object; shop holds no Forge"):
        load_app("shop:forge")
    with pytest.raises(BadAppPath, match="is the function itself, not a Forge"):
        load_app("shop:make")
    with pytest.raises(BadAppPath, match="is the class itself, not a Forge"):
        load_app("shop:Forge")


def test_two_objects_need_a_name(folder: Path) -> None:
    write(folder, "shop.py", FORGE + "second = Forge('memory://')\n")
    with pytest.raises(BadAppPath, match="did you mean shop:forge or shop:second"):
        load_app("shop")


def test_an_error_of_the_module_is_shown_with_its_location(folder: Path) -> None:
    write(folder, "broken.py", "x = 1\ny = x / 0\n")
    with pytest.raises(BadAppPath) as caught:
        load_app("broken:forge")
    text = str(caught.value)
    assert "importing it failed" in text
    assert 'broken.py", line 2' in text
    assert "ZeroDivisionError: division by zero" in text
    assert "importlib" not in text


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def (", "SyntaxError"),
    ],
)
def test_import_errors_differ_from_a_missing_module(folder: Path, code: str, words: str) -> None:
    write(folder, "broken.py", code)
    with pytest.raises(BadAppPath, match=words) as caught:
        load_app("broken:forge")
    assert "importing it failed" in str(caught.value)
