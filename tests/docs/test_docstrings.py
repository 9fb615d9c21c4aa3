"""Every public name has an example in its docstring, and every example does what it says.

An example begins with ``>>>`` and runs as a doctest; that of an error may also be a call in the
docstring's text that raises it, or ``forge help CODE`` where only a broken machine raises it.
Examples know the names of forge_jobs, a Forge in memory with one task, ``forge`` and ``send``, and
``queue``, a pull queue in memory.
"""

import asyncio
import doctest
import inspect
import logging
import pydoc
import re
import threading
import traceback
from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from typing import Any

import pytest

import forge_jobs
from forge_jobs import BadUrl, Context, Forge, ForgeError, Job, JobQueue, Task, pull, testing, web
from forge_jobs.app.jobs import Jobs
from forge_jobs.app.schedules import Schedules
from forge_jobs.cli.error_help import explanations
from forge_jobs.client.options import TaskOptions
from forge_jobs.web.api.openapi import openapi_document
from scripts.docs_site.reference.python_names import described

_CALL = re.compile(r"``([\w.]+\(.*?\))``", re.S)
_PARSER = doctest.DocTestParser()


def public_names() -> dict[str, Any]:
    """Every name of the reference and every error, but for constants, which have no docstring."""
    found = {path: _value(path) for path in [*described(), *forge_jobs.__all__]}
    return {
        path: value
        for path, value in found.items()
        if inspect.isclass(value) or inspect.isroutine(value)
    }


def _value(path: str) -> Any:
    module, _, name = path.rpartition(":")
    return getattr(import_module(module or "forge_jobs"), name)


NAMES = public_names()
# The methods that people use every day have an example in their docstring, too: one call.
EVERYDAY: dict[type, str] = {
    Forge: "enqueue job queue queue_of send ready close",
    Task: "enqueue bind",
    Job: "refresh result cancel retry run_now reschedule delete logs steps",
    Jobs: "count retry cancel delete run_now reschedule",
    Context: "progress raise_if_cancelled on_done enqueue sleep",
    Schedules: "list get create edit enable disable delete trigger history",
    JobQueue: "enqueue dequeue complete fail release heartbeat get counts summary cleanup work "
    "work_pool",
}
METHODS = [(cls, name) for cls, listed in EVERYDAY.items() for name in listed.split()]
# What has to happen before the call of an example makes sense.
BEFORE = {
    "Job.result": "forge.drain().run()",
    "Job.retry": "job.cancel()",
    "Job.delete": "job.cancel()",
    "Job.run_now": "job.reschedule('1h')",
}
ERRORS = {path for path, value in NAMES.items() if isinstance(value, type)
          and issubclass(value, ForgeError)}  # fmt: skip


@pytest.fixture
def names() -> Iterator[dict[str, Any]]:
    """What examples know."""
    forge = Forge("memory://")

    @forge.task(queue="mail")
    def send(to: str, subject: str = "hi") -> str:
        return f"{subject} to {to}"

    queue = JobQueue.open("memory://")
    made = {name: getattr(forge_jobs, name) for name in forge_jobs.__all__}
    modules = {"asyncio": asyncio, "logging": logging, "threading": threading}
    rooms = {"testing": testing, "pull": pull, "web": web}
    yield {
        **made,
        **modules,
        **rooms,
        "datetime": datetime,
        "forge": forge,
        "send": send,
        "queue": queue,
    }
    queue.close()
    forge.close()


def examples_of(path: str, names: dict[str, Any]) -> doctest.DocTest:
    return _PARSER.get_doctest(inspect.getdoc(NAMES[path]) or "", names, path, path, 0)


def run(example: doctest.DocTest) -> str:
    """What went otherwise than the example says."""
    told: list[str] = []
    options = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    doctest.DocTestRunner(optionflags=options, verbose=False).run(example, out=told.append)
    return "".join(told)


def raised_by(call: str, names: dict[str, Any]) -> BaseException | None:
    """The error of a call in the text of a docstring."""
    try:
        returned = eval(call, names)  # noqa: S307  (the text is ours)
        if inspect.iscoroutine(returned):
            asyncio.run(returned)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("path", NAMES)
def test_the_example_of_a_name_does_what_it_says(path: str, names: dict[str, Any]) -> None:
    example = examples_of(path, names)
    if example.examples:
        assert run(example) == ""
        return
    assert path in ERRORS, f"{path} has no example in its docstring"
    text = inspect.getdoc(NAMES[path]) or ""
    if f"``forge help {NAMES[path].code}``" in text:
        assert NAMES[path].code in explanations()
        return
    call = _CALL.search(text)
    assert call is not None, f"{path} has no example in its docstring"
    assert isinstance(raised_by(call[1], names), NAMES[path]), call[1]


def call_of(cls: type, name: str) -> str:
    """The call in the docstring of a method."""
    text = " ".join((inspect.getdoc(getattr(cls, name)) or "").split())
    calls = [one for one in re.findall(r"``(.+?)``", text) if re.search(rf"\.{name}\(", one)]
    assert calls, f"{cls.__name__}.{name} has no example in its docstring"
    return calls[0]


@pytest.mark.parametrize(("cls", "name"), METHODS, ids=lambda one: getattr(one, "__name__", one))
def test_the_call_of_a_method_works(cls: type, name: str, names: dict[str, Any]) -> None:
    forge, queue = names["forge"], names["queue"]
    names["job"] = job = names["send"].enqueue("a@b.c")
    if cls is JobQueue:
        queue.enqueue("resize", {"path": "a.png"})
        names["job"] = queue.dequeue()
    names["stop"] = stop = threading.Event()
    stop.set()
    forge.schedules.create("nightly", "0 3 * * *", names["send"], payload={"to": "a@b.c"})
    eval(BEFORE.get(f"{cls.__name__}.{name}", "None"), names)  # noqa: S307  (the text is ours)
    call = call_of(cls, name)
    if cls is not Context:
        assert raised_by(call, names) is None, call
        return
    job = task_that_calls(forge, call, names).enqueue()
    forge.drain().run()
    assert (job.refresh().error, job.attempts <= 1) == (None, True), call


def task_that_calls(forge: Forge, call: str, names: dict[str, Any]) -> Any:
    """A task of which a run is the call in an example."""

    @forge.task
    async def awaiting(ctx: Context) -> None:
        await eval(call.removeprefix("await "), {**names, "ctx": ctx})  # noqa: S307

    @forge.task
    def calling(ctx: Context) -> None:
        eval(call, {**names, "ctx": ctx})  # noqa: S307

    return awaiting if call.startswith("await ") else calling


def test_a_wrong_example_is_found(names: dict[str, Any]) -> None:
    wrong = _PARSER.get_doctest(">>> send('Ada')\n'hello'", names, "wrong", "wrong", 0)
    assert "Expected:\n    'hello'\nGot:\n    'hi to Ada'" in run(wrong)
    assert raised_by("send('Ada')", names) is None


def test_an_error_names_the_command_that_explains_it() -> None:
    error = BadUrl("no such scheme")
    assert str(error) == "no such scheme"
    shown = "".join(traceback.format_exception_only(error))
    assert shown.splitlines()[-1] == "more: forge help bad_url"


def test_help_shows_every_option_of_a_task() -> None:
    with Forge("memory://") as forge:
        shown = pydoc.plain(pydoc.render_doc(forge.task))
    for option in TaskOptions.__annotations__:
        assert f"``{option}" in shown, option


def test_nothing_public_is_left_out() -> None:
    assert len(NAMES) > 120
    assert {"Forge", "BadUrl", "forge_jobs.testing:frozen", "forge_jobs.pull:Job"} <= set(NAMES)


def test_examples_are_not_part_of_other_descriptions() -> None:
    schemas = openapi_document("", read_only=False)["components"]["schemas"]
    texts = [str(one.get("description")) for one in schemas.values()]
    texts += [one.means for one in explanations().values()]
    assert len(texts) > 60
    assert [text for text in texts if ">>>" in text] == []
