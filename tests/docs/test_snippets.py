"""Every ```python block of the documentation runs as it is printed.

The blocks of a page run one after the other in one namespace, which begins with the names of
forge_jobs, ``asyncio`` and ``forge``, a Forge in memory; ``await`` may stand at the top. Comments
of the Markdown that readers do not see belong to the block behind them:

    <!-- before: Python that prepares it, for example names that the text leaves to the reader -->
    <!-- after: Python that uses or checks what the block made -->
    <!-- not run: the reason -->

A line that ends in ``# BadArguments: words`` must raise that error with these words.
"""

import ast
import asyncio
import inspect
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import forge_jobs
from forge_jobs import Forge

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r"(?P<comments>(?:^<!-- (?:before|after|not run): (?:(?!-->).)*-->\n+)*)"
    r"^(?P<indent> *)```python\n(?P<code>.*?)^ *```$",
    re.M | re.S,
)
_COMMENT = re.compile(r"<!-- (before|after|not run): (.*?)-->", re.S)
_RAISES = re.compile(r"#\s*([A-Z]\w+): (.+)$")


@dataclass(frozen=True, slots=True)
class Snippet:
    """One block: its page and line, its code, what runs before and after it, and why it does
    not run."""

    where: str
    line: int
    code: str
    before: str = ""
    after: str = ""
    not_run: str | None = None


def snippets(path: Path) -> list[Snippet]:
    """The blocks of a page, in order."""
    return list(_found(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))


def _found(where: str, text: str) -> Iterator[Snippet]:
    for match in _BLOCK.finditer(text):
        comments = _COMMENT.findall(match["comments"])
        indent = match["indent"]
        code = re.sub(rf"^{indent}", "", match["code"], flags=re.M)
        yield Snippet(
            where=where,
            line=text[: match.start("code")].count("\n") + 1,
            code=code,
            before="\n".join(text for kind, text in comments if kind == "before"),
            after="\n".join(text for kind, text in comments if kind == "after"),
            not_run=next((text.strip() for kind, text in comments if kind == "not run"), None),
        )


def pages() -> list[Path]:
    """The pages that have blocks. The first block of the README is a program: test_readme.py."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    made = ROOT / "docs" / "reference"
    return [path for path in found if not path.is_relative_to(made) and snippets(path)]


@pytest.fixture
def namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that a page begins with; a folder of its own; logging as it was."""
    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    names = {name: getattr(forge_jobs, name) for name in forge_jobs.__all__}
    made = {**names, "asyncio": asyncio, "forge": Forge("memory://"), "__name__": "a_page"}
    yield made
    root.handlers[:], root.level = handlers, level
    for value in list(made.values()):
        if isinstance(value, Forge):
            value.close()


def run(snippet: Snippet, names: dict[str, Any]) -> None:
    """Run the statements of a block, one by one."""
    run_code(snippet.before, names, f"{snippet.where}, before line {snippet.line}", 0)
    run_code(snippet.code, names, snippet.where, snippet.line - 1)
    run_code(snippet.after, names, f"{snippet.where}, after line {snippet.line}", 0)


def run_code(code: str, names: dict[str, Any], where: str, skipped: int) -> None:
    """``skipped``: lines of the page before the code, for tracebacks."""
    lines = code.splitlines()
    for statement in ast.parse(code, where).body:
        end = statement.end_lineno or statement.lineno
        wanted = _RAISES.search(lines[end - 1])
        ast.increment_lineno(statement, skipped)
        module = ast.Module([statement], [])
        compiled = compile(module, where, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if wanted is None or wanted[1] not in forge_jobs.__all__:
            call(compiled, names)
        else:
            with pytest.raises(getattr(forge_jobs, wanted[1]), match=re.escape(wanted[2])):
                call(compiled, names)


def call(compiled: Any, names: dict[str, Any]) -> None:
    returned = eval(compiled, names)  # noqa: S307  (the text is ours)
    if inspect.iscoroutine(returned):
        asyncio.run(returned)


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_the_blocks_of_a_page_run(path: Path, namespace: dict[str, Any]) -> None:
    for snippet in snippets(path):
        if snippet.not_run is None:
            run(snippet, namespace)


def test_most_blocks_run_and_those_that_do_not_say_why() -> None:
    found = [snippet for path in pages() for snippet in snippets(path)]
    left_out = [snippet for snippet in found if snippet.not_run is not None]
    assert len(found) >= 25
    assert len(left_out) <= len(found) // 4
    assert all(len(snippet.not_run or "") > 15 for snippet in left_out)


def test_no_block_escapes_the_search() -> None:
    for path in pages():
        text = path.read_text(encoding="utf-8")
        assert len(re.findall(r"^ *```python", text, re.M)) == len(snippets(path)), path


def test_a_wrong_block_is_found(namespace: dict[str, Any]) -> None:
    text = "# A\n\n<!-- before: x = 1 -->\n```python\nx += 1\nassert x == 3\n```\n"
    [snippet] = _found("a.md", text)
    assert (snippet.line, snippet.before, snippet.not_run) == (5, "x = 1 ", None)
    with pytest.raises(AssertionError) as caught:
        run(snippet, namespace)
    # The sixth line of the page, counted from 0.
    assert caught.traceback[-1].lineno == 5
    with pytest.raises(pytest.fail.Exception):
        run(Snippet("a.md", 1, "1 + 1  # BadArguments: words"), namespace)


def test_await_may_stand_at_the_top(namespace: dict[str, Any]) -> None:
    run(Snippet("a.md", 1, "await asyncio.sleep(0)\nx = 1"), namespace)
    assert namespace["x"] == 1
