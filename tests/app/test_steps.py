"""Steps of handlers: what runs once, what runs again, and what is said about misuse."""

import asyncio
import dataclasses
import logging
import threading
from typing import Any

import msgspec
import pytest

from forge_jobs import BadName, BadStep, Context, Forge, JobStatus, Retry, testing
from forge_jobs.core import steps as core_steps
from forge_jobs.engine.steps import run_steps

Calls = list[Any]


@dataclasses.dataclass
class Charge:
    id: str
    cents: int


class Parcel(msgspec.Struct):
    number: int
    to: str


async def run_all(forge: Forge, job: Any, *, times: int = 20) -> Any:
    """Let time pass until the job has ended or waits for an event."""
    with testing.frozen(forge) as time:
        for _ in range(times):
            await forge.drain()
            await job.arefresh()
            if job.ended or job.status is JobStatus.SUSPENDED:
                return job
            time.advance("1h")
    raise AssertionError(f"{job} has not ended: {job.error}")


async def failure(forge: Forge, task: Any, *args: Any) -> str:
    """The error of a job that fails at once."""
    job = await task.aenqueue(*args)
    await forge.drain()
    await job.arefresh()
    assert job.status in (JobStatus.DEAD, JobStatus.FAILED), job.status
    return str(job.error)


# ---------------------------------------------------------------------------------- what runs once


async def test_a_step_runs_once_although_the_job_is_retried(forge: Forge) -> None:
    calls: Calls = []

    def charge(cents: int) -> Charge:
        calls.append("charge")
        return Charge("ch_1", cents)

    async def ship(to: str) -> Parcel:
        calls.append("ship")
        return Parcel(7, to)

    seen: Calls = []

    @forge.task(max_attempts=3)
    async def fulfil(cents: int, ctx: Context) -> str:
        charged = await ctx.step("charge", charge, cents)
        parcel = await ctx.step(ship, to="ada")
        seen.append((charged, parcel))
        if len(seen) < 3:
            raise RuntimeError("not yet")
        return charged.id

    job = await run_all(forge, await fulfil.aenqueue(12))
    assert await job.aresult(timeout=0) == "ch_1"
    assert calls == ["charge", "ship"]
    # The first run, which ran the functions, saw what the later ones got from the store.
    assert seen == [(Charge("ch_1", 12), Parcel(7, "ada"))] * 3
    assert testing.steps_of(job) == {
        "charge": {"id": "ch_1", "cents": 12},
        "ship": {"number": 7, "to": "ada"},
    }


async def test_a_value_without_annotation_is_plain_json_in_every_run(forge: Forge) -> None:
    seen: Calls = []

    def loose(n: int):  # type: ignore[no-untyped-def]
        return (n, Charge("c", n))

    @forge.task(max_attempts=2)
    async def work(ctx: Context) -> None:
        seen.append(await ctx.step("loose", loose, 1))
        if len(seen) == 1:
            raise RuntimeError("again")

    await run_all(forge, await work.aenqueue())
    assert seen == [[1, {"id": "c", "cents": 1}]] * 2


async def test_a_value_annotated_with_object_is_plain_json(forge: Forge) -> None:
    def look() -> dict[str, object]:
        return {"a": [1, {"b": None}]}

    @forge.task
    async def work(ctx: Context) -> object:
        return await ctx.step("look", look)

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=1) == {"a": [1, {"b": None}]}


async def test_repeats_are_numbered_and_keys_replace_the_number(forge: Forge) -> None:
    @forge.task
    async def work(ctx: Context) -> None:
        for n in range(3):
            await ctx.step("fetch", abs, n)
        for name in "ab":
            await ctx.step.using(key=name)("fetch", str, name)
        assert ctx.steps == 5

    job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DONE, job.error
    assert testing.steps_of(job) == {
        "fetch": 0, "fetch#2": 1, "fetch#3": 2, "fetch[a]": "a", "fetch[b]": "b",
    }  # fmt: skip


async def test_a_call_that_raised_is_repeated_under_its_identity(forge: Forge) -> None:
    calls: Calls = []

    async def flaky() -> int:
        calls.append("flaky")
        if len(calls) == 1:
            raise ConnectionError("down")
        return len(calls)

    @forge.task(max_attempts=2)
    async def work(ctx: Context) -> int:
        try:
            value = await ctx.step("flaky", flaky)
        except ConnectionError:
            value = await ctx.step("flaky", flaky)
        if ctx.job.attempts == 1 and len(calls) == 2:
            calls.append("end of the first run")
            raise RuntimeError("again")
        return value

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) == 2
    assert calls == ["flaky", "flaky", "end of the first run"]
    assert list(testing.steps_of(job)) == ["flaky"]


def test_a_def_handler_has_steps_too(forge: Forge) -> None:
    threads: Calls = []

    def where() -> int:
        threads.append(threading.get_ident())
        return 5

    @forge.task(max_attempts=2)
    def work(ctx: Context) -> int:
        value = ctx.step_sync("where", where)
        if len(threads) < 2:
            threads.append(threading.get_ident())
            raise RuntimeError("again")
        ctx.sleep_sync("2h")
        return value + ctx.step_sync(abs, -1)

    job = work.enqueue()
    with testing.frozen(forge) as time:
        for _ in range(4):
            forge.drain().run()
            time.advance("1h")
    assert job.result(timeout=0) == 6
    assert len(threads) == 2
    assert threads[0] == threads[1]


async def test_a_plain_function_does_not_block_the_loop(forge: Forge) -> None:
    gate = threading.Event()

    def blocking() -> str:
        assert gate.wait(30)
        return threading.current_thread().name

    @forge.task
    async def work(ctx: Context) -> str:
        step = asyncio.ensure_future(ctx.step("blocking", blocking))
        await asyncio.sleep(0)
        gate.set()
        return await step

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) != threading.current_thread().name


# ------------------------------------------------------------------------------------- identity


async def test_gather_in_random_order_dbos_688(forge: Forge) -> None:
    """Identity is given at the call, not at the start, and keys tell parallel calls apart."""
    runs = 0
    calls: Calls = []

    async def fetch(n: int, turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        calls.append(n)
        return n * 10

    @forge.task(max_attempts=3)
    async def work(ctx: Context) -> list[int]:
        nonlocal runs
        runs += 1
        order = [0, 1, 2, 3] if runs % 2 else [3, 1, 0, 2]
        steps = {n: ctx.step.using(key=n)("fetch", fetch, n, (7 * n) % 4) for n in order}
        values = await asyncio.gather(*(steps[n] for n in range(4)))
        if runs < 3:
            raise RuntimeError("again")
        return values

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) == [0, 10, 20, 30]
    assert sorted(calls) == [0, 1, 2, 3]


async def test_two_open_steps_of_one_name_need_keys(forge: Forge) -> None:
    async def fetch(n: int) -> int:
        return n

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        first = ctx.step("fetch", fetch, 1)
        try:
            await asyncio.gather(first, ctx.step("fetch", fetch, 2))
        finally:
            first.close()

    text = await failure(forge, work)
    assert "BadStep" in text
    assert "using(key=...)" in text


async def test_a_key_twice_in_one_run_is_an_error_and_no_memo(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        one = ctx.step.using(key="x")
        await one("fetch", abs, 1)
        await one("fetch", abs, 1)

    assert "fetch[x]' is called twice in one run" in await failure(forge, work)


async def test_number_signs_are_refused_in_names(forge: Forge) -> None:
    refused: Calls = []

    @forge.task
    async def work(ctx: Context) -> None:
        for name in ("a#2", "", "x\n"):
            with pytest.raises(BadName):
                ctx.step(name, abs, 1)
            refused.append(name)
        with pytest.raises(BadStep, match="no name"):
            ctx.step(lambda: 1)

    job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DONE, job.error
    assert len(refused) == 3


async def test_a_deploy_that_inserts_renames_and_removes_a_step_druks_619(forge: Forge) -> None:
    version = 1
    calls: Calls = []

    def note(name: str) -> str:
        calls.append(name)
        return name

    @forge.task(max_attempts=2)
    async def work(n: int, ctx: Context) -> list[str]:
        names = ("a", "b", "c") if version == 1 else ("new", "a", "renamed", "c")
        values = [await ctx.step(name, note, f"{name}{n}") for name in names]
        if version == 1:
            raise RuntimeError("deploy")
        return values

    jobs = await work.aenqueue_many([(n,) for n in range(20)])
    with testing.frozen(forge) as time:
        await forge.drain()
        version = 2
        time.advance("1d")
        await forge.drain()
    for n, job in enumerate(jobs):
        assert await job.aresult(timeout=0) == [f"new{n}", f"a{n}", f"renamed{n}", f"c{n}"]
    assert len(calls) == 20 * 3 + 20 * 2


# --------------------------------------------------------------------- changed code and values


async def test_changed_arguments_warn_once_and_keep_the_stored_value(
    forge: Forge, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0

    @forge.task(max_attempts=3)
    async def work(ctx: Context) -> int:
        nonlocal tries
        tries += 1
        value = await ctx.step("abs", abs, -tries)
        if tries < 2:
            raise RuntimeError("again")
        return value

    with caplog.at_level(logging.WARNING, "forge_jobs.job"):
        job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) == 1
    warnings = [line for line in caplog.messages if "other arguments" in line]
    assert len(warnings) == 1
    assert [line.message for line in await job.alogs()] == warnings


async def test_on_change_dead_ends_the_job(forge: Forge) -> None:
    tries = 0

    @forge.task(max_attempts=5)
    async def work(ctx: Context) -> int:
        nonlocal tries
        tries += 1
        await ctx.step.using(on_change="dead")("abs", abs, -tries)
        raise RuntimeError("again")

    job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DEAD
    assert "step 'abs' is called with other arguments" in str(job.error)
    assert tries == 2


async def test_a_stored_value_that_no_longer_fits_names_step_and_field(forge: Forge) -> None:
    tries = 0

    def old() -> dict[str, str]:
        return {"id": "x", "cents": "twelve"}

    def new() -> Charge:
        raise AssertionError("not called")

    @forge.task(max_attempts=2)
    async def work(ctx: Context) -> None:
        nonlocal tries
        tries += 1
        await ctx.step("charge", old if tries == 1 else new)
        raise RuntimeError("again")

    job = await run_all(forge, await work.aenqueue())
    error = str(job.error)
    assert "step 'charge'" in error
    assert "cents" in error
    assert "retry the job from this step" in error


# ------------------------------------------------------------------------------------- errors


class PaymentDeclined(Exception):
    pass


class Insufficient(PaymentDeclined):
    def __init__(self, message: str, cents: int) -> None:
        super().__init__(message, cents)
        self.cents = cents


async def test_declared_errors_are_stored_and_raised_again(forge: Forge) -> None:
    calls: Calls = []
    seen: Calls = []

    def charge() -> None:
        calls.append("charge")
        raise Insufficient("too little", 7)

    @forge.task(max_attempts=2)
    async def work(ctx: Context) -> None:
        try:
            await ctx.step.using(errors=(PaymentDeclined,))("charge", charge)
        except Insufficient as error:
            seen.append((type(error), error.args, error.cents))
        if len(seen) == 1:
            raise RuntimeError("again")

    job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DONE, job.error
    assert calls == ["charge"]
    assert seen == [(Insufficient, ("too little", 7), 7)] * 2


async def test_an_undeclared_error_ends_the_run_and_going_on_is_a_warning(
    forge: Forge, caplog: pytest.LogCaptureFixture
) -> None:
    calls: Calls = []

    async def flaky() -> int:
        calls.append(1)
        raise ConnectionError("down")

    @forge.task
    async def work(ctx: Context) -> None:
        with pytest.raises(ConnectionError):
            await ctx.step("flaky", flaky)

    with caplog.at_level(logging.WARNING, "forge_jobs.job"):
        job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DONE
    (line,) = [line for line in caplog.messages if "the handler went on" in line]
    assert "errors=(ConnectionError,)" in line
    assert testing.steps_of(job) == {}


async def test_short_retries_of_a_step_wait_in_place(forge: Forge) -> None:
    calls: Calls = []

    async def flaky() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError("down")
        return len(calls)

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> int:
        careful = ctx.step.using(retry=Retry(delays=["1ms", "2ms"], never=(KeyError,)))
        return await careful("flaky", flaky)

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) == 3


async def test_a_retry_longer_than_ten_seconds_ends_the_run_with_that_delay(forge: Forge) -> None:
    calls: Calls = []

    async def flaky() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError("down")
        return len(calls)

    @forge.task(max_attempts=2, retry=Retry(base="1s"))
    async def work(ctx: Context) -> int:
        return await ctx.step.using(retry=Retry(delays=["1ms", "40m"]))("flaky", flaky)

    job = await work.aenqueue()
    with testing.frozen(forge) as time:
        await forge.drain()
        await job.arefresh()
        assert job.status is JobStatus.FAILED
        assert (job.run_at - time.now()).total_seconds() == pytest.approx(2_400, abs=1)
        time.advance("40m")
        await forge.drain()
    assert await job.aresult(timeout=0) == 3


async def test_a_step_has_its_own_timeout(forge: Forge) -> None:
    async def slow() -> None:
        await asyncio.Event().wait()

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.step.using(timeout="20ms")("slow", slow)

    assert "step 'slow' did not end within 0.02 s" in await failure(forge, work)


# ------------------------------------------------------------------------------------- limits


async def test_a_value_over_the_limit_names_its_step(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.step("big", lambda: "x" * (256 << 10))

    text = await failure(forge, work)
    assert "step 'big': its value has 262,146 bytes" in text
    assert "return a reference" in text


async def test_too_many_steps_name_restart(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_steps, "MAX_STEPS", 3)

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        for n in range(4):
            await ctx.step("n", abs, n)

    text = await failure(forge, work)
    assert "'n#4' would be step 4" in text
    assert "ctx.restart" in text


async def test_a_long_history_is_read_by_page(forge: Forge) -> None:
    calls: Calls = []
    count = core_steps.MAX_CLAIMED_STEPS + 40

    def note(n: int) -> int:
        calls.append(n)
        return n

    @forge.task(max_attempts=2)
    async def work(ctx: Context) -> int:
        batch = (ctx.step.using(key=n)("note", note, n) for n in range(count))
        total = sum(await asyncio.gather(*batch))
        if ctx.job.attempts == 1 and len(calls) == count:
            calls.append(-1)
            raise RuntimeError("again")
        assert ctx.steps == count
        return total

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) == sum(range(count))
    assert len(calls) == count + 1


# ------------------------------------------------------------------------------------- misuse


async def test_steps_do_not_nest(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        async def outer() -> None:
            await ctx.step("inner", abs, 1)

        await ctx.step("outer", outer)

    assert "in the function of step 'outer': steps do not nest" in await failure(forge, work)


async def test_a_handler_that_returns_while_a_step_is_open_fails(forge: Forge) -> None:
    started = asyncio.Event()
    kept: Calls = []

    async def slow() -> None:
        started.set()
        await asyncio.Event().wait()

    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> str:
        kept.append(asyncio.ensure_future(ctx.step("slow", slow)))
        await started.wait()
        return "done"

    text = await failure(forge, work)
    kept[0].cancel()
    assert "the handler returned while step 'slow' was open: await every step" in text


async def test_a_step_after_the_run_or_in_another_thread_is_refused(forge: Forge) -> None:
    kept: list[Context] = []
    errors: Calls = []

    def elsewhere(ctx: Context) -> None:
        try:
            ctx.step("x", abs, 1)
        except BadStep as error:
            errors.append(str(error))

    @forge.task
    async def work(ctx: Context) -> None:
        kept.append(ctx)
        await ctx.step("first", abs, 1)
        await asyncio.to_thread(elsewhere, ctx)

    @forge.task
    def plain(ctx: Context) -> None:
        ctx.step_sync("first", abs, 1)
        thread = threading.Thread(target=lambda: errors.append(_error(ctx)))
        thread.start()
        thread.join()

    def _error(ctx: Context) -> str:
        with pytest.raises(BadStep) as caught:
            ctx.step_sync("x", abs, 1)
        return str(caught.value)

    for task in (work, plain):
        job = await run_all(forge, await task.aenqueue())
        assert job.status is JobStatus.DONE, job.error
    with pytest.raises(BadStep, match=r"the run of job .* has ended"):
        kept[0].step("late", abs, 1)
    assert "the event loop of their handler" in errors[0]
    assert "belong to one thread" in errors[1]


async def test_each_form_is_for_its_own_handlers(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        ctx.step_sync("x", abs, 1)

    @forge.task(max_attempts=1)
    def plain(ctx: Context) -> None:
        ctx.sleep("1h")

    assert "write `await ctx.step(...)` here" in await failure(forge, work)
    assert "write ctx.sleep_sync(...) here" in await failure(forge, plain)


# ------------------------------------------------------------------------------------- attempts


async def test_a_failed_run_that_stored_a_step_gives_its_attempt_back(forge: Forge) -> None:
    runs = 0

    @forge.task(max_attempts=2, retry=Retry(base="1s"))
    async def work(ctx: Context) -> int:
        nonlocal runs
        runs += 1
        for n in range(runs):
            await ctx.step.using(key=n)("n", abs, n)
        if runs < 6:
            raise RuntimeError(f"run {runs}")
        return runs

    job = await run_all(forge, await work.aenqueue())
    assert await job.aresult(timeout=0) == 6
    assert job.attempts == 1
    assert job.record.failed_runs == 5


async def test_without_progress_attempts_are_spent(forge: Forge) -> None:
    @forge.task(max_attempts=3, retry=Retry(base="1s"))
    async def work(ctx: Context) -> None:
        await ctx.step("once", abs, 1)
        raise RuntimeError("always")

    job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DEAD
    # The first run stored a step, the three others did not.
    assert (job.attempts, job.record.failed_runs) == (3, 1)


async def test_max_attempts_one_never_gives_an_attempt_back(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        await ctx.step("once", abs, 1)
        raise RuntimeError("always")

    job = await run_all(forge, await work.aenqueue())
    assert (job.status, job.attempts) == (JobStatus.DEAD, 1)


async def test_retry_total_bounds_the_failed_runs(forge: Forge) -> None:
    runs = 0

    @forge.task(max_attempts=2, retry=Retry(base="1s", total=4))
    async def work(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        await ctx.step.using(key=runs)("n", abs, runs)
        raise RuntimeError("always")

    job = await run_all(forge, await work.aenqueue())
    assert job.status is JobStatus.DEAD
    assert runs in (4, 5)


# --------------------------------------------------------------------------------------- restart


async def test_restart_begins_a_new_history_with_checked_arguments(forge: Forge) -> None:
    seen: Calls = []

    @forge.task
    async def work(n: int, ctx: Context) -> int:
        await ctx.step("n", abs, n)
        seen.append((n, ctx.steps))
        if n < 3:
            with pytest.raises(Exception, match="must be int"):
                ctx.restart("four")
            raise ctx.restart(n + 1)
        return n

    job = await run_all(forge, await work.aenqueue(1))
    assert await job.aresult(timeout=0) == 3
    assert seen == [(1, 1), (2, 1), (3, 1)]
    assert testing.steps_of(job) == {"n": 3}


# --------------------------------------------------------------------------------- plain calls


async def test_a_plain_call_runs_steps_in_place(forge: Forge) -> None:
    @forge.task
    async def work(n: int, ctx: Context) -> list[int]:
        first = await ctx.step("abs", abs, n)
        await ctx.sleep("10d")
        late = await ctx.wait_for("late", timeout="1d", default={"n": 0})
        paid = await ctx.wait_for("paid", key=n)
        return [first, late["n"], paid["n"]]

    @forge.task
    def plain(n: int, ctx: Context) -> int:
        ctx.sleep_sync("1d")
        return ctx.step_sync(abs, n)

    with testing.events(("paid", {"n": 5}, -1)):
        assert await work(-1) == [1, 0, 5]
    assert plain(-3) == 3
    with pytest.raises(BadStep, match=r"testing\.events"):
        await work(-1)
