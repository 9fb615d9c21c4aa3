"""Tracebacks as text: frames, causes, groups, notes; bounded, without variables and secrets."""

import asyncio
from typing import Any, NoReturn

import pytest

from forge_jobs.core.failing_line import failing_line
from forge_jobs.kit.traceback_text import MAX_BYTES, output_text, redacted_code, traceback_text


def _caught(function: Any, *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


def _text(function: Any, *args: Any) -> str:
    text = traceback_text(_caught(function, *args))
    assert text is not None
    return text


def _read_entry(table: dict[str, int], name: str) -> int:
    return table[name]  # the line that fails


def test_u1_frames_show_file_line_and_code() -> None:
    text = _text(_read_entry, {}, "missing")
    lines = text.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    number = _read_entry.__code__.co_firstlineno + 1
    assert lines[-4] == f'  File "{__file__}", line {number}, in _read_entry'
    assert lines[-3].strip() == "return table[name]  # the line that fails"
    assert lines[-2] == " " * 11 + "^" * 11
    assert lines[-1] == "KeyError: 'missing'"
    assert failing_line(text) == f"test_traceback_text.py:{number}"


def test_u1_causes_contexts_and_notes() -> None:
    def fails() -> NoReturn:
        try:
            try:
                _read_entry({}, "first")
            except KeyError:
                raise ValueError("second")  # noqa: B904  -- the implicit context is tested
        except ValueError as error:
            third = RuntimeError("third")
            third.add_note("asked for by ada")
            raise third from error

    text = _text(fails)
    order = [
        "KeyError: 'first'",
        "During handling of the above exception, another exception occurred:",
        "ValueError: second",
        "The above exception was the direct cause of the following exception:",
        "RuntimeError: third",
        "asked for by ada",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_u1_a_suppressed_context_is_left_out() -> None:
    def fails() -> NoReturn:
        try:
            _read_entry({}, "hidden")
        except KeyError:
            raise ValueError("plain") from None

    assert "hidden" not in _text(fails)


def test_u1_members_of_exception_groups_are_shown() -> None:
    async def one_fails(name: str) -> None:
        _read_entry({}, name)

    async def all_fail() -> None:
        async with asyncio.TaskGroup() as group:
            for name in ("one", "two"):
                group.create_task(one_fails(name))

    text = _text(asyncio.run, all_fail())
    assert "unhandled errors in a TaskGroup (2 sub-exceptions)" in text
    assert "| KeyError: 'one'" in text
    assert "| KeyError: 'two'" in text
    assert text.count("return table[name]") == 2


def test_u1_no_local_variable_is_ever_shown() -> None:
    def fails(secret: str) -> None:
        local = secret + "-local"
        raise ValueError(len(local))

    text = _text(fails, "hunter2")
    assert "hunter2" not in text
    assert "local = " not in text


def test_u1_secrets_in_messages_notes_and_code_are_masked() -> None:
    def fails() -> NoReturn:
        error = ConnectionError("cannot reach postgres://me:planted1@host/db, token=planted2")
        error.add_note("Authorization: Bearer planted3")
        raise connect(error, password="planted4", key="x")

    def connect(error: Exception, **options: str) -> Exception:
        return error

    text = _text(fails)
    assert "planted" not in text
    assert 'connect(error, password="***", key="x")' in text


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("token = read(path)", "token = read(path)"),
        ('token = data["missing"]', 'token = data["missing"]'),
        ('password = "abc"', 'password = "***"'),
        ("d['api_key'] = 'abc'", "d['api_key'] = '***'"),
        ('{"secret": "abc", "name": "ada"}', '{"secret": "***", "name": "ada"}'),
        ('open("redis://:abc@host/0")', 'open("redis://:***@host/0")'),
        ("call(token=1234)", "call(token=***)"),
    ],
)
def test_u1_source_lines_keep_their_names_and_lose_secret_literals(line: str, shown: str) -> None:
    assert redacted_code(line) == shown


def test_u1_deep_recursion_keeps_both_ends_of_the_stack() -> None:
    def first() -> None:
        down(0)

    def down(depth: int) -> None:
        if depth == 300:
            raise ValueError("at the bottom")
        down(depth + 1)

    text = _text(first)
    assert "in first" in text
    assert "frames left out …" in text
    assert text.count("in down") < 45
    assert text.endswith("ValueError: at the bottom")
    assert "depth == 300" not in text
    assert 'raise ValueError("at the bottom")' in text


def test_u1_large_tracebacks_are_cut_in_the_middle() -> None:
    def fails(left: int) -> NoReturn:
        try:
            if left:
                fails(left - 1)
        except ValueError as error:
            raise ValueError("é" * 3_000) from error
        raise ValueError("the first one")

    text = _text(fails, 6)
    assert len(text.encode()) <= MAX_BYTES
    assert "bytes left out …" in text
    assert text.startswith("Traceback (most recent call last):")
    assert "the first one" in text
    assert text.rstrip().endswith("é")


@pytest.mark.parametrize("size", [0, 1, MAX_BYTES, MAX_BYTES + 1, 10 * MAX_BYTES])
def test_u1_the_output_of_a_program_is_bounded(size: int) -> None:
    text = output_text("→" * size)
    assert (text is None) == (size == 0)
    assert len((text or "").encode()) <= MAX_BYTES


class _Hostile(Exception):
    def __str__(self) -> str:
        raise SystemExit("from __str__")


def test_u1_hostile_exceptions_do_no_harm() -> None:
    def fails(error: BaseException) -> NoReturn:
        raise error

    assert "<_Hostile that cannot be shown>" in _text(fails, _Hostile())
    circle = ValueError("a")
    circle.__cause__ = RuntimeError("b")
    circle.__cause__.__cause__ = circle
    assert _text(fails, circle).count("ValueError: a") == 1
    odd = ValueError("nul \0 bell \a esc \x1b[31m surrogate \ud800 end")
    text = _text(fails, odd)
    assert "nul  bell \\x07 esc \\x1b[31m surrogate ? end" in text
    odd.__notes__ = 7  # type: ignore[assignment]
    assert traceback_text(odd) is not None
    huge = ValueError("x" * 50_000_000)
    assert len(_text(fails, huge)) < 6_000
    wide = ExceptionGroup("wide", [ExceptionGroup("w", [ValueError(i)]) for i in range(500)])
    assert "492 more exceptions left out" in _text(fails, wide)
    deep: Exception = ValueError("core")
    for _ in range(60):
        deep = ExceptionGroup("deep", [deep])
    assert "inner exceptions left out" in _text(fails, deep)


def test_u1_an_exception_without_frames_has_no_traceback() -> None:
    assert traceback_text(ValueError("never raised")) is None


def test_u1_code_that_was_compiled_from_text_shows_its_line_number() -> None:
    text = _text(exec, compile("def f():\n    1 / 0\nf()", "<made up>", "exec"))
    assert 'File "<made up>", line 2, in f' in text
    assert failing_line(text) is not None


@pytest.mark.parametrize(
    ("paths", "line"),
    [
        (["/srv/app.py"], "app.py:1"),
        (["/srv/app.py", "/v/site-packages/requests/api.py"], "app.py:1"),
        (["/srv/app.py", "/usr/lib/python3.11/json/decoder.py"], "app.py:1"),
        (["/v/site-packages/a.py", "/v/site-packages/b.py"], "b.py:2"),
        ([r"C:\app\jobs.py"], "jobs.py:1"),
        ([], None),
    ],
)
def test_u1_the_failing_line_is_the_application_s_own(paths: list[str], line: str | None) -> None:
    frames = [f'  File "{path}", line {n}, in f\n    code' for n, path in enumerate(paths, 1)]
    assert failing_line("\n".join(["Traceback:", *frames, "ValueError: x"])) == line
    assert failing_line(None) is None
