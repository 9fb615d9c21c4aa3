"""A failed attempt keeps its traceback; everything that shows a job shows it."""

import asyncio
import logging
import pickle
import sys
import threading
import traceback
from typing import Any, NoReturn

import pytest

from forge_jobs import (
    CmdExecHandler,
    Context,
    Dead,
    Failed,
    Forge,
    JobFailed,
    JobQueue,
    JobStatus,
    Retry,
    WorkerPoolConfig,
    WorkerPoolHandler,
    testing,
)
from forge_jobs.core.errors import RemoteTraceback
from forge_jobs.handlers.cmd_exec_commands import Command

CODE = 'return {"a": 1}[name]'


def read_entry(name: str) -> int:
    return {"a": 1}[name]


def line_of(function: Any) -> int:
    return function.__code__.co_firstlineno + 1


WHERE = f'File "{__file__}", line {line_of(read_entry)}, in read_entry'


async def failed_once(forge: Forge, kind: str, payload: Any = None) -> Any:
    """Enqueue a job, run it once, and read it."""
    job = await forge.aenqueue(kind, payload or {})
    await forge.drain()
    return await job.arefresh()


def check(text: str | None) -> str:
    assert text is not None
    assert WHERE in text
    assert CODE in text
    assert "KeyError: 'missing'" in text
    first_frame = next(line for line in text.splitlines() if line.lstrip().startswith("File "))
    assert __file__ in first_frame, "the frames of the engine come first"
    return text


# ------------------------------------------------------------------------------ executors


@pytest.mark.parametrize("kind", ["on_loop", "in_thread"])
async def test_u1_a_failed_attempt_keeps_its_traceback(forge: Forge, kind: str) -> None:
    @forge.task(max_attempts=2, retry=Retry(delays=[0]))
    async def on_loop() -> int:
        await asyncio.sleep(0)
        return read_entry("missing")

    @forge.task(max_attempts=2, retry=Retry(delays=[0]))
    def in_thread() -> int:
        return read_entry("missing")

    job = await failed_once(forge, kind)
    check(job.traceback)
    await forge.drain()
    await job.arefresh()
    assert (job.status, len(job.errors)) == (JobStatus.DEAD, 2)
    for error in job.errors:
        check(error.traceback)


async def test_u1_hooks_around_a_run_do_not_hide_the_user_s_frames(forge: Forge) -> None:
    @forge.around_run
    def watch(ctx: Context) -> Any:
        yield

    @forge.task
    def fails() -> int:
        return read_entry("missing")

    check((await failed_once(forge, "fails")).traceback)


@pytest.mark.parametrize("is_async", [True, False])
async def test_u1_the_frames_between_a_handler_and_its_step_are_left_out(
    forge: Forge, is_async: bool
) -> None:
    async def fetch(name: str) -> int:
        return read_entry(name)

    @forge.task(kind="step", max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.step("read", fetch if is_async else read_entry, "missing")

    job = await failed_once(forge, work.kind)
    text = check(job.errors[0].traceback)
    files = {line.split('"')[1] for line in text.splitlines() if line.lstrip().startswith("File ")}
    assert files == {__file__}


@pytest.mark.parametrize("outcome", [Dead, Failed])
async def test_u1_an_outcome_raised_from_an_exception_shows_its_cause(
    forge: Forge, outcome: type[Dead] | type[Failed]
) -> None:
    @forge.task
    async def gives_up() -> None:
        try:
            read_entry("missing")
        except KeyError:
            raise outcome("no such user")  # noqa: B904  -- the implicit context is tested

    job = await failed_once(forge, "gives_up")
    assert job.error == "no such user"
    text = check(job.traceback)
    assert text.endswith(f"forge_jobs.{outcome.__name__}: no such user")


async def test_u1_a_returned_failure_has_no_traceback(forge: Forge) -> None:
    @forge.task
    async def gives_up() -> Dead:
        return Dead("no such user")

    assert (await failed_once(forge, "gives_up")).traceback is None


async def test_u1_a_timeout_shows_where_the_handler_waited(forge: Forge) -> None:
    @forge.task(timeout=0.05)
    async def waits() -> None:
        await asyncio.sleep(3_600)

    job = await failed_once(forge, "waits")
    assert job.error == "timed out after 0.05 s"
    assert "await asyncio.sleep(3_600)" in (job.traceback or "")


async def test_u1_no_local_variables_and_no_secrets_are_stored(forge: Forge) -> None:
    @forge.task
    async def leaks(card: str) -> None:
        local = f"{card}-local"
        raise ConnectionError(f"postgres://me:planted@host/db token=planted {len(local)}")

    job = await failed_once(forge, "leaks", {"card": "4111-1111"})
    assert "4111" not in job.traceback
    assert "planted" not in job.traceback
    assert "ConnectionError: postgres://me:***@host/db" in job.traceback


@pytest.mark.processes
async def test_u1_programs_keep_the_end_of_their_standard_error(forge: Forge) -> None:
    script = "import sys; sys.stderr.write('x' * 5000 + '\\npassword=planted\\nlast words'); "
    command = Command(path=sys.executable, args=["-c", script + "sys.exit(3)"])
    forge.register(CmdExecHandler(commands={"fail": command}))
    pooled = "import sys; sys.stdin.readline(); print('pool words', file=sys.stderr); sys.exit(7)"
    forge.register(
        WorkerPoolHandler(WorkerPoolConfig(argv=[sys.executable, "-c", pooled], handshake=False))
    )
    job = await failed_once(forge, "cmd_exec", {"command": "fail"})
    assert job.traceback.endswith("last words")
    assert len(job.traceback) > 5_000
    assert "planted" not in job.traceback
    job = await failed_once(forge, "worker_pool", {})
    assert job.traceback == "pool words"


# ------------------------------------------------------------------------------ where it is shown


async def test_u1_job_failed_carries_the_traceback(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def fails() -> int:
        return read_entry("missing")

    job = await failed_once(forge, "fails")
    caught: list[JobFailed] = []
    for timeout in (0, 10):
        with pytest.raises(JobFailed) as raised:
            await job.aresult(timeout=timeout)
        caught.append(raised.value)
        with pytest.raises(JobFailed) as raised:
            await asyncio.to_thread(job.result, timeout)
        caught.append(raised.value)
    for error in caught:
        check(error.traceback)
        assert (error.attempts, len(error.errors), error.error) == (1, 1, "KeyError: 'missing'")
        line = f"{__file__.rpartition('/')[2]}:{line_of(read_entry)}"
        assert str(error).endswith(f"ended as dead: KeyError: 'missing' ({line})")
        assert isinstance(error.__cause__, RemoteTraceback)
        printed = "".join(traceback.format_exception(error))
        assert WHERE in printed
        assert "direct cause" in printed
    copy = pickle.loads(pickle.dumps(caught[0]))  # noqa: S301  -- our own bytes
    assert (str(copy), copy.errors) == (str(caught[0]), caught[0].errors)


async def test_u1_a_cancelled_job_has_no_traceback(forge: Forge) -> None:
    @forge.task
    async def never() -> None: ...

    job = await never.aenqueue()
    await job.acancel("not wanted")
    with pytest.raises(JobFailed, match=r"ended as cancelled: not wanted\n") as raised:
        await job.aresult(timeout=0)
    assert (raised.value.traceback, raised.value.__cause__) == (None, None)


async def test_u1_the_log_shows_the_traceback_and_the_facts(
    forge: Forge, caplog: pytest.LogCaptureFixture
) -> None:
    @forge.task(queue="mail", max_attempts=2, retry=Retry(delays=[0]))
    async def send(to: str) -> int:
        return read_entry(to)

    job = await failed_once(forge, "send", {"to": "missing"})
    await forge.drain()
    warning, error = (one for one in caplog.records if one.name == "forge_jobs.engine")
    where = f"({__file__.rpartition('/')[2]}:{line_of(read_entry)})"
    facts = f"send {job.id} queue=mail attempt"
    assert warning.getMessage() == (
        f"job failed and will be retried in 0 s: {facts} 1/2: KeyError: 'missing' {where}"
    )
    assert error.getMessage() == f"job is dead: {facts} 2/2: KeyError: 'missing' {where}"
    # What any formatter of the standard library prints.
    check(logging.Formatter().format(error).partition("\n")[2])
    assert (error.job_id, error.kind, error.queue) == (job.id, "send", "mail")  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------ inline mode


def test_u1_inline_mode_raises_the_handler_s_own_exception(forge: Forge) -> None:
    class NoSuchUser(LookupError):
        pass

    @forge.task
    async def on_loop() -> NoReturn:
        raise NoSuchUser("ada")

    @forge.task
    def in_thread() -> int:
        return read_entry("missing")

    with testing.inline(forge):
        with pytest.raises(NoSuchUser, match="ada") as raised:
            on_loop.enqueue()
        assert "in job " in raised.value.__notes__[0]
        with pytest.raises(KeyError, match="missing") as caught:
            in_thread.enqueue()
        assert "in read_entry" in "".join(traceback.format_exception(caught.value))
    assert forge.registry.get("in_thread") is not None


def test_u1_inline_mode_reports_returned_failures_as_job_failed(forge: Forge) -> None:
    @forge.task
    async def gives_up() -> Dead:
        return Dead("no such user")

    with (
        testing.inline(forge),
        pytest.raises(JobFailed, match="ended as dead: no such user"),
    ):
        gives_up.enqueue()


# ------------------------------------------------------------------------------ pull queue


def test_u1_the_pull_queue_stores_tracebacks(shared_url: str) -> None:
    queue = JobQueue.open(shared_url, table="pulled")
    try:
        worked, failed = queue.enqueue("work", {}), queue.enqueue("fail", {})

        stop = threading.Event()

        def handle(job: Any) -> int:
            stop.set()
            return read_entry("missing")

        assert queue.work(handle, types=["work"], stop=stop) == 1
        found = queue.get(worked)
        assert found is not None
        check(found.traceback)
        job = queue.dequeue(["fail"])
        assert job is not None
        try:
            read_entry("missing")
        except KeyError as error:
            queue.fail(job, error)
        found = queue.get(failed)
        assert found is not None
        check(found.traceback)
    finally:
        queue.close()
