"""Rare options as users give them, by two made-up ones: ``note`` and ``level``."""

from typing import Any

import pytest

from forge_jobs import BadOption, Context, Forge
from forge_jobs.client import options


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def upper(name: str, value: Any) -> Any:
        if value == "":
            raise BadOption(f"{name}= is empty")
        return None if value is None else str(value).upper()

    where = "forge_jobs.client.options."
    monkeypatch.setattr(
        f"{where}_RARE_OPTIONS", {"note": ("note_text", upper), "level": ("level", upper)}
    )
    for names, known in (("_JOB_NAMES", options.JobOptions), ("_TASK_NAMES", options.TaskOptions)):
        monkeypatch.setattr(where + names, (*known.__annotations__, "note", "level"))


def task_with(forge: Forge, **given: Any) -> Any:
    def job() -> None: ...

    return forge.task(kind="job", **given)(job)


def test_those_of_a_task_are_for_its_jobs_and_its_handler(forge: Forge) -> None:
    job = task_with(forge, note="a", level=None)
    handler = forge.handler("job")
    assert handler is not None
    assert job.bind().options == handler.options == {"note_text": "A"}
    assert job.successor().options == {"note_text": "A"}
    with pytest.raises(BadOption, match="note= is empty"):
        forge.task(kind="other", note="")(lambda: None)


def test_those_of_a_single_job_are_added(forge: Forge) -> None:
    job = task_with(forge, note="a", level="b")
    both = {"note_text": "A", "level": "B"}
    assert job.using(level="c").bind().options == {**both, "level": "C"}
    assert job.using(level="c").using(note=None).bind().options == {"note_text": None, "level": "C"}
    assert job.using(priority=3).bind().options == job.bind().options == both


async def test_those_of_a_job_by_kind_are_added(forge: Forge) -> None:
    task_with(forge, note="a", level="b")
    given: dict[str, Any] = {"level": None}
    store = await forge.aready()
    here = await store.jobs.get((await forge.aenqueue("job", {}, **given)).id)
    elsewhere = await store.jobs.get((await forge.aenqueue("elsewhere", {}, **given)).id)
    assert here is not None
    assert here.options == {"note_text": "A", "level": None}
    assert elsewhere is not None
    assert elsewhere.options == {"level": None, "undeclared": [], "unrouted": True}


def test_tasks_and_jobs_without_any_keep_the_short_paths(forge: Forge) -> None:
    job = task_with(forge, note=None)
    handler = forge.handler("job")
    assert handler is not None
    assert job.bind().options is job.using(priority=3).bind().options is handler.options is None


def test_a_handler_object_is_checked_like_a_task(forge: Forge) -> None:
    class Slow:
        kind = "slow"

        async def run(self, ctx: Context, payload: Any) -> None: ...

    with pytest.raises(BadOption, match="timeout=0 must be longer than zero; None means no limit"):
        forge.register(Slow(), timeout=0)
    forge.register(Slow(), timeout="2m")
    handler = forge.handler("slow")
    assert handler is not None
    assert (handler.timeout_s, handler.options) == (120.0, None)
