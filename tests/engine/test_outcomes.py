"""Everything a handler can do becomes a recorded outcome, on the loop and in threads."""

import asyncio
import sys
import threading
from typing import Any

import pytest

from forge_jobs.core.errors import BadArguments
from forge_jobs.core.outcome import Dead, Done, Failed, JobOutcome, Snooze, Throttled
from forge_jobs.core.retry import Retry
from forge_jobs.core.status import JobStatus
from forge_jobs.engine.running.context import Context
from forge_jobs.store.queues import QueueChange
from tests.engine.rig import Rig, until


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Recursive:
    def model_dump(self, mode: str) -> Any:
        return self.model_dump(mode)


def _recurse(depth: int) -> int:
    return _recurse(depth + 1) + 1


def _chained() -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise ValueError("outer") from error


RAISED: dict[str, tuple[Any, str]] = {
    "exception": (lambda: ValueError("no such city"), "ValueError: no such city"),
    "no text": (ValueError, "ValueError"),
    "system exit": (lambda: SystemExit(3), "SystemExit: 3"),
    "keyboard interrupt": (KeyboardInterrupt, "KeyboardInterrupt"),
    "generator exit": (lambda: GeneratorExit("bye"), "GeneratorExit: bye"),
    "memory": (MemoryError, "MemoryError"),
    "base": (lambda: BaseException("deep"), "BaseException: deep"),
    "cancelled": (asyncio.CancelledError, "CancelledError"),
    "unspeakable": (Unspeakable, "Unspeakable (its message cannot be read)"),
    "nul and secret": (
        lambda: ValueError("a\0b redis://me:hunter2@host \ud800"),
        "ValueError: ab redis://me:***@host ?",
    ),
    "failed": (lambda: Failed("not today"), "not today"),
    "bare outcome": (lambda: JobOutcome("odd"), "JobOutcome: odd"),
}


def _register(rig: Rig, where: str, body: Any, **options: Any) -> None:
    if where == "loop":

        async def on_loop(ctx: Context, given: Any) -> Any:
            return body(ctx, given)

        rig.on("work", on_loop, **options)
    else:
        rig.on("work", body, **options)


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_A1_every_exception_is_recorded_and_the_slot_continues(rig: Rig, where: str) -> None:
    def body(ctx: Context, given: Any) -> None:
        if given["name"] != "good":
            raise RAISED[given["name"]][0]()

    _register(rig, where, body)
    async with rig.working({"q": 1}):
        for name, (_, expected) in RAISED.items():
            record = await rig.runs("work", {"name": name})
            assert (name, record.status, record.last_error) == (name, JobStatus.FAILED, expected)
            assert record.owner is None
        assert (await rig.runs("work", {"name": "good"})).status is JobStatus.DONE


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_A1_recursion_and_results_that_cannot_be_stored(rig: Rig, where: str) -> None:
    cases: dict[str, tuple[Any, str]] = {
        "object": (object, "result cannot be stored as JSON"),
        "nan": (lambda: float("nan"), "NaN"),
        "large": (lambda: "x" * 2_000, "result is 2,002 bytes and the limit is 1,000"),
        "recursive": (Recursive, "result cannot be stored as JSON"),
    }

    def body(ctx: Context, given: Any) -> Any:
        return _recurse(0) if given["name"] == "depth" else cases[given["name"]][0]()

    _register(rig, where, body, result_limit=1_000)
    async with rig.working({"q": 1}):
        deep = await rig.runs("work", {"name": "depth"})
        assert deep.status is JobStatus.FAILED
        assert deep.last_error is not None
        assert deep.last_error.startswith("RecursionError")
        for name, (_, expected) in cases.items():
            record = await rig.runs("work", {"name": name})
            assert record.status is JobStatus.DEAD
            assert expected in (record.last_error or "")


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_values_and_outcomes_may_be_returned_or_raised(rig: Rig, where: str) -> None:
    def body(ctx: Context, given: Any) -> Any:
        outcomes: dict[str, Any] = {
            "nothing": None,
            "value": {"a": [1, "ö"]},
            "done": Done(7),
            "done empty": Done(),
            "failed": Failed("later"),
            "dead": Dead("never"),
            "snooze": Snooze("1h"),
        }
        outcome = outcomes[given["name"]]
        if given["raised"]:
            raise outcome
        return outcome

    _register(rig, where, body)
    expected = {
        "nothing": (JobStatus.DONE, None, None, 1),
        "value": (JobStatus.DONE, b'{"a":[1,"\xc3\xb6"]}', None, 1),
        "done": (JobStatus.DONE, b"7", None, 1),
        "done empty": (JobStatus.DONE, None, None, 1),
        "failed": (JobStatus.FAILED, None, "later", 1),
        "dead": (JobStatus.DEAD, None, "never", 1),
        "snooze": (JobStatus.SCHEDULED, None, None, 0),
    }
    async with rig.working({"q": 2}):
        for name, wanted in expected.items():
            for raised in (False, True):
                if raised and name in ("nothing", "value"):
                    continue
                record = await rig.runs("work", {"name": name, "raised": raised})
                found = (record.status, record.result, record.last_error, record.attempts)
                assert (name, found) == (name, wanted)


async def test_the_causes_of_an_error_are_recorded(rig: Rig) -> None:
    async def grouped(ctx: Context, given: Any) -> None:
        async def fail() -> None:
            raise OSError("disk")

        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    rig.on("chained", lambda ctx, given: _chained())
    rig.on("grouped", grouped)
    async with rig.working():
        assert (await rig.runs("chained")).last_error == "ValueError: outer: KeyError: 'inner'"
        record = await rig.runs("grouped")
        assert (record.last_error or "").endswith("(1 sub-exception): OSError: disk")


async def test_long_errors_are_bounded(rig: Rig) -> None:
    def body(ctx: Context, given: Any) -> None:
        raise ValueError("x" * 1_000_000)

    rig.on("work", body)
    async with rig.working():
        assert len((await rig.runs("work")).last_error or "") == 2_000


async def test_retry_only_and_never_decide_which_errors_are_retried(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        raise {"os": OSError, "value": ValueError, "key": KeyError}[given["name"]]("x")

    rig.on("only", body, retry=Retry(only=(OSError,)))
    rig.on("never", body, retry=Retry(never=(ValueError,)))
    async with rig.working():
        assert (await rig.runs("only", {"name": "os"})).status is JobStatus.FAILED
        assert (await rig.runs("only", {"name": "value"})).status is JobStatus.DEAD
        assert (await rig.runs("never", {"name": "value"})).status is JobStatus.DEAD
        assert (await rig.runs("never", {"name": "key"})).status is JobStatus.FAILED


async def test_u4_bad_arguments_of_the_handler_itself_are_retried(rig: Rig) -> None:
    def call(ctx: Context, given: Any) -> None:
        raise BadArguments("send() misses the argument 'to'")

    rig.on("work", call)
    async with rig.working():
        record = await rig.runs("work")
        assert record.status is JobStatus.FAILED
        assert "misses the argument 'to'" in (record.last_error or "")


async def test_an_unknown_kind_waits_for_a_worker_that_knows_it(rig: Rig) -> None:
    async with rig.working():
        record = await rig.runs("unheard-of")
        assert record.status is JobStatus.SCHEDULED
        assert record.attempts == 0
        assert "no worker of this queue has a handler" in (record.last_error or "")
        assert record.missing_since is not None


async def test_a_handler_that_kills_its_own_task_costs_one_attempt(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def fine(ctx: Context, given: Any) -> None:
        await asyncio.sleep(0)

    rig.on("suicidal", body)
    rig.on("fine", fine)
    async with rig.working({"q": 1}):
        assert (await rig.runs("suicidal")).status is JobStatus.FAILED
        assert (await rig.runs("fine")).status is JobStatus.DONE


async def test_an_exit_in_a_thread_ends_neither_thread_nor_worker(rig: Rig) -> None:
    names: list[str] = []

    def body(ctx: Context, given: Any) -> None:
        names.append(threading.current_thread().name)
        sys.exit(1)

    rig.on("work", body)
    async with rig.working({"q": 1}):
        for _ in range(3):
            assert (await rig.runs("work")).last_error == "SystemExit: 1"
    assert len(names) == 3


async def test_the_first_retry_waits_base_and_queue_settings_come_after_the_task(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        raise ValueError("x")

    def delay_s(record: Any) -> float:
        return (record.run_at - record.errors[-1].at) / 1_000_000

    rig.on("plain", body)
    rig.on("own", body, retry=Retry(base="100s", max="1h", jitter=0))
    async with rig.working():
        assert 13.4 <= delay_s(await rig.runs("plain")) <= 16.6
        assert delay_s(await rig.runs("own")) == pytest.approx(100, abs=0.01)
        await rig.store.queues.change(
            "q", QueueChange(backoff_enabled=True, backoff_base_s=600, backoff_max_s=700)
        )

        async def by_queue() -> bool:
            return delay_s(await rig.runs("plain")) >= 539

        await until(by_queue, "the queue's own back-off counts")
        assert delay_s(await rig.runs("own")) == pytest.approx(100, abs=0.01)


async def test_throttled_without_attempt_and_with_its_delay(rig: Rig) -> None:
    async def body(ctx: Context, given: Any) -> None:
        raise Throttled(retry_after=300, scope="nobody declared this")

    rig.on("work", body)
    async with rig.working():
        record = await rig.runs("work")
        assert record.status is JobStatus.SCHEDULED
        assert record.attempts == 0
        config = await rig.store.queues.get("q")
        assert config is not None
        assert config.gate.until is not None
        assert config.gate.until - config.updated_at >= 0
