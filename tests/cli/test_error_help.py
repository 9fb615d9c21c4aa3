"""``forge help CODE``: every code of the package is explained, offline and in 80 columns."""

import ast
import json
from pathlib import Path

import pytest

from forge_jobs.cli.commands import run
from forge_jobs.cli.error_help import error_classes, explanations
from forge_jobs.core.errors import ForgeError

CODES = tuple(explanations())


def codes_in_source(root: Path) -> set[str]:
    """The codes that classes of errors have and that the command line gives to its own errors."""
    found: set[str] = set()
    for path in (root / "src" / "forge_jobs").rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text if "code" in text else "")):
            if isinstance(node, ast.ClassDef):
                found |= {
                    item.value.value
                    for item in node.body
                    if isinstance(item, ast.Assign | ast.AnnAssign)
                    and ast.unparse(item).startswith(("code =", "code:"))
                    and isinstance(item.value, ast.Constant)
                }
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("Stop", "print_error"):
                found |= {
                    word.value.value
                    for word in node.keywords
                    if word.arg == "code" and isinstance(word.value, ast.Constant)
                }
    return found


def test_every_code_is_explained_and_every_explanation_has_a_code(project_root: Path) -> None:
    assert codes_in_source(project_root) == set(CODES)
    assert {one.code for one in error_classes()} <= set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_code_is_explained_in_80_columns(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", code]) == 0
    said = capsys.readouterr().out
    assert said.startswith(code)
    assert explanations()[code].page in said
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("code", CODES)
def test_the_page_of_a_code_is_there(code: str, project_root: Path) -> None:
    assert (project_root / "docs" / explanations()[code].page).is_file()


def test_without_a_code_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:] if not line.startswith(" ")] == list(CODES)
    assert run(["help", "--json"]) == 0
    assert [one["code"] for one in json.loads(capsys.readouterr().out)] == list(CODES)


@pytest.mark.parametrize("wanted", ["bad_url", "BadUrl", "badurl", "BAD-URL"])
def test_a_code_is_found_by_its_class_too(wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", wanted, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["code"], told["error"], told["exit_code"]) == ("bad_url", "BadUrl", 2)


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [("KeyTakn", "did you mean key_taken or kind_taken?"), ("zzzz", "`forge help` lists all")],
)
def test_an_unknown_code_names_near_ones(
    wanted: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["help", wanted]) == 1
    said = capsys.readouterr()
    assert hint in said.err
    assert said.out == ""
    assert len(said.err.splitlines()) == 1


def test_an_error_names_the_command_that_explains_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jobs", "list", "--url", "mysql://db/x"]) == 2
    assert capsys.readouterr().err.endswith("(more: forge help bad_url)\n")
    assert run(["jobs", "list", "--url", "mysql://db/x", "--json"]) == 2
    assert "forge help" not in capsys.readouterr().err


def test_codes_are_unique() -> None:
    codes = [one.code for one in error_classes(ForgeError)]
    assert len(codes) == len(set(codes))
