"""examples/README.md lists every example with the command that its header names, and a test runs
every file."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from tests.examples.commands import EXAMPLES, named_command
from tests.examples.test_applications import APPLICATIONS

TESTS = EXAMPLES.parent / "tests"
# Tests that run examples, besides those of this folder.
ELSEWHERE = ("web/api/test_mounting.py", "handlers/test_worker_pool.py")
# Files that another example uses, and the container image, which needs Docker.
PARTS = {
    "mounting/jobs.py": "mounting/fastapi_app.py",
    "testing/shop.py": "testing/test_shop.py",
    "testing/pytest.ini": "testing/test_shop.py",
    "gateway/Dockerfile": "gateway/compose.yaml",
    **dict.fromkeys(
        (
            "django_shop/manage.py",
            "django_shop/settings.py",
            "django_shop/urls.py",
            "django_shop/shop/__init__.py",
            "django_shop/shop/admin.py",
            "django_shop/shop/models.py",
            "django_shop/shop/tasks.py",
            "django_shop/shop/tests.py",
        ),
        "django_shop/demo.py",
    ),
}
# Files to copy, not programs to run: tests/docs/test_monitoring_files.py reads every one of them.
TO_COPY = ("deploy/", "monitoring/")


def files() -> list[str]:
    """Every file of the examples, but for READMEs and what running them leaves behind."""
    found = (path for path in EXAMPLES.rglob("*") if path.is_file() and path.name != "README.md")
    left = ("__pycache__", ".pytest_cache", ".db")
    settings = EXAMPLES / "pytest.ini"  # of the tests of the applications
    return sorted(
        path.relative_to(EXAMPLES).as_posix()
        for path in found
        if path != settings
        and not any(mark in path.as_posix() for mark in left)
        and not path.relative_to(EXAMPLES).as_posix().startswith(TO_COPY)
    )


def index() -> dict[str, str]:
    """The examples that the index lists, with the command of each."""
    rows = re.findall(
        r"^\| \[(.+?)\]\((.+?)\) \| .+ \| `(.+?)`(?:, see its README)? \|$",
        (EXAMPLES / "README.md").read_text(),
        re.M,
    )
    assert all(shown == target for shown, target, _ in rows)
    return {target: command for _, target, command in rows}


def texts_of(test: Path) -> set[str]:
    """All texts that the code of a test contains."""
    nodes = ast.walk(ast.parse(test.read_text()))
    constants = (node for node in nodes if isinstance(node, ast.Constant))
    return {node.value for node in constants if isinstance(node.value, str)}


def test_the_index_lists_every_example_once() -> None:
    assert len(index()) >= 12 + len(APPLICATIONS)
    assert sorted(index()) == sorted({name.split("/")[0] for name in files()})


@pytest.mark.parametrize("example", index())
def test_the_index_has_the_command_that_the_header_names(example: str) -> None:
    command = index()[example]
    if example == "gateway":
        assert command in (EXAMPLES / "gateway" / "README.md").read_text()
        return
    [*_, target] = shlex.split(command)
    if target.endswith(":app"):
        folder = shlex.split(command)[2]
        path = EXAMPLES.parent / folder / f"{target.removesuffix(':app')}.py"
    else:
        path = EXAMPLES.parent / target
    if path.is_dir():
        [path] = path.glob("test_*.py")
    name = path.relative_to(EXAMPLES).as_posix()
    assert name.split("/")[0] == example
    assert named_command(name) == command.replace("examples/quickstart/", "")


@pytest.mark.parametrize("name", files())
def test_a_test_runs_it(name: str) -> None:
    if name.split("/")[0] in APPLICATIONS:
        return  # tests/examples/test_applications.py runs their demos and their tests
    name = PARTS.get(name, name)
    own = [test for test in (TESTS / "examples").glob("*.py") if test.name != "test_index.py"]
    assert any(name in texts_of(test) for test in own) or any(
        {Path(name).name, Path(name).stem} & texts_of(TESTS / test) for test in ELSEWHERE
    ), f"examples/{name} is run by no test of tests/examples, nor by {ELSEWHERE}"


def test_the_documentation_links_to_the_index() -> None:
    root = EXAMPLES.parent
    assert "(examples/README.md)" in (root / "README.md").read_text()
    assert "(../examples/README.md)" in (root / "docs" / "README.md").read_text()
