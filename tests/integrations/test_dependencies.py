"""``@inject``: dependencies of FastAPI in tasks, on a worker and in plain calls."""

import asyncio
import functools
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Query, Request

from forge_jobs import BadArguments, BadOption, Context, Forge, JobFailed, Retry
from forge_jobs.integrations.fastapi import inject, overrides_of


@pytest.fixture
def forge() -> Forge:
    return Forge("memory://")


class Session:
    """Stands for one of an ORM: says what became of it."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def end(self, word: str) -> None:
        self.log.append(word)


LOG: list[str] = []


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    LOG.clear()


async def get_session() -> AsyncGenerator[Session]:
    session = Session(LOG)
    LOG.append("open")
    try:
        yield session
    except Exception:
        session.end("rolled back")
        raise
    session.end("committed")


def get_plain_session() -> Generator[Session]:
    session = Session(LOG)
    LOG.append("open")
    try:
        yield session
    except Exception:
        session.end("rolled back")
        raise
    session.end("committed")


def fresh() -> object:
    return object()


def get_careless() -> Generator[int]:
    try:
        yield 1
    except ValueError:
        LOG.append("swallowed")


def get_tenant(ctx: Context) -> str:
    return ctx.job.tags[0]


Tenant = Annotated[str, Depends(get_tenant)]
AsyncSessionDep = Annotated[Session, Depends(get_session)]
PlainSessionDep = Annotated[Session, Depends(get_plain_session)]


class Orders:
    def __init__(self, session: PlainSessionDep, table: str = "orders") -> None:
        self.session = session
        self.table = table


def test_they_are_no_arguments_of_the_job_and_end_with_it(forge: Forge) -> None:
    @forge.task(queue="mail")
    @inject
    async def send(to: str, session: AsyncSessionDep, subject: str = "hi") -> str:
        """Send a letter."""
        session.end(f"letter {subject} to {to}")
        return to

    job = send.enqueue("ada", subject="hello")
    assert next(iter(forge.jobs())).payload == {
        "to": "ada", "subject": "hello",
    }  # fmt: skip
    forge.drain().run()
    assert job.result() == "ada"
    assert LOG == ["open", "letter hello to ada", "committed"]
    assert send.__doc__ == "Send a letter."
    with pytest.raises(BadArguments, match="unexpected argument 'session'"):
        send.enqueue("ada", session=Session(LOG))


def test_an_error_of_the_task_reaches_what_stands_after_the_yield(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    @inject
    async def fails(session: AsyncSessionDep) -> None:
        raise ValueError("no")

    @forge.task(max_attempts=1)
    @inject
    def fails_plainly(session: PlainSessionDep) -> None:
        raise ValueError("no")

    for task in (fails, fails_plainly):
        LOG.clear()
        job = task.enqueue()
        forge.drain().run()
        with pytest.raises(JobFailed, match="ValueError: no"):
            job.result()
        assert LOG == ["open", "rolled back"]


def test_an_error_after_the_yield_fails_the_job(forge: Forge) -> None:
    """A commit that fails must not be taken for a success."""

    async def get_broken() -> AsyncGenerator[int]:
        yield 1
        raise ConnectionError("the commit failed")

    @forge.task(max_attempts=1)
    @inject
    async def send(session: Annotated[int, Depends(get_broken)]) -> None: ...

    job = send.enqueue()
    forge.drain().run()
    with pytest.raises(JobFailed, match="the commit failed"):
        job.result()


@pytest.mark.parametrize("is_async", [True, False])
def test_an_error_that_a_dependency_swallows_fails_the_job_even_so(
    forge: Forge, is_async: bool
) -> None:
    if is_async:

        @forge.task(kind="send", retry=Retry(never=(ValueError,)))
        @inject
        async def send(number: Annotated[int, Depends(get_careless)]) -> None:
            raise ValueError("no")
    else:

        @forge.task(kind="send", retry=Retry(never=(ValueError,)))
        @inject
        def send_plainly(number: Annotated[int, Depends(get_careless)]) -> None:
            raise ValueError("no")

    job = forge.enqueue("send")
    forge.drain().run()
    assert job.refresh().status == "dead"
    assert LOG == ["swallowed"]


def test_each_is_called_once_per_job_unless_it_says_otherwise(forge: Forge) -> None:
    @forge.task
    @inject
    def send(
        a: PlainSessionDep,
        orders: Annotated[Orders, Depends()],
        x: Annotated[object, Depends(fresh, use_cache=False)],
        y: Annotated[object, Depends(fresh, use_cache=False)],
    ) -> list[bool]:
        return [orders.session is a, x is y]

    for _ in range(2):
        job = send.enqueue()
        forge.drain().run()
        assert job.result() == [True, False]
    assert LOG == ["open", "committed"] * 2


async def test_a_cancel_closes_plain_ones_of_an_awaited_task(forge: Forge) -> None:
    def get_connection() -> Generator[int]:
        try:
            yield 1
        finally:
            LOG.append("closed")

    @forge.task
    @inject
    async def send(connection: Annotated[int, Depends(get_connection)]) -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(send(), 0.05)
    assert LOG == ["closed"]


def test_plain_ones_serve_async_tasks_and_end_in_reverse_order(forge: Forge) -> None:
    def get_file(session: PlainSessionDep) -> Generator[str]:
        yield "file"
        LOG.append("file closed")

    async def get_name(file: Annotated[str, Depends(get_file)], suffix: str = ".txt") -> str:
        return file + suffix

    @forge.task
    @inject
    async def send(name: Annotated[str, Depends(get_name)]) -> str:
        return name

    job = send.enqueue()
    forge.drain().run()
    assert job.result() == "file.txt"
    assert LOG == ["open", "file closed", "committed"]


def test_a_dependency_may_take_the_context(forge: Forge) -> None:
    @forge.task
    @inject
    def bill(number: int, tenant: Tenant) -> str:
        return f"{tenant} {number}"

    @forge.task
    @inject
    async def mail(tenant: Tenant, *numbers: int, ctx: Context, **rest: int) -> str:
        return f"{tenant} {numbers} {rest} {ctx.job.kind}"

    jobs = [bill.using(tags=["acme"]).enqueue(7), mail.using(tags=["acme"]).enqueue(1, 2, n=3)]
    forge.drain().run()
    assert [job.result() for job in jobs] == ["acme 7", "acme (1, 2) {'n': 3} mail"]


def test_callable_objects_and_partials(forge: Forge) -> None:
    class Limit:
        def __init__(self, most: int) -> None:
            self.most = most

        def __call__(self, session: PlainSessionDep) -> int:
            return self.most

    def scaled(factor: int, limit: Annotated[int, Depends(Limit(3))]) -> int:
        return factor * limit

    @forge.task
    @inject
    def send(limit: int = Depends(functools.partial(scaled, 2))) -> int:
        return limit

    job = send.enqueue()
    forge.drain().run()
    assert job.result() == 6


def test_overrides_of_an_application_hold(forge: Forge) -> None:
    def get_orders(session: AsyncSessionDep) -> Session:
        return session

    @forge.task
    @inject
    async def send(session: Annotated[Session, Depends(get_orders)]) -> str:
        return type(session).__name__

    def fake() -> str:
        return "text instead of a session"

    app = FastAPI()
    app.dependency_overrides[get_session] = fake
    first = send.enqueue()
    with overrides_of(app):
        forge.drain().run()
    second = send.enqueue()
    forge.drain().run()
    assert [first.result(), second.result()] == ["str", "Session"]


def test_a_plain_call_solves_them_or_takes_them_by_name(forge: Forge) -> None:
    @forge.task
    @inject
    def send(to: str, session: PlainSessionDep) -> str:
        session.end(to)
        return to

    own: list[str] = []
    assert send("ada", session=Session(own)) == "ada"
    assert (own, LOG) == (["ada"], [])
    assert send("grace") == "grace"
    assert LOG == ["open", "grace", "committed"]


CPU_TASK = """
from __future__ import annotations
from typing import Annotated
from fastapi import Depends
from forge_jobs import Context, Forge
from forge_jobs.integrations.fastapi import inject

forge = Forge("sqlite:///jobs.db")

def get_factor(ctx: Context):
    with open("log", "a") as log:
        log.write(f"{ctx.job.kind} opened\\n")
    yield 5
    with open("log", "a") as log:
        log.write("closed\\n")

@forge.task(cpu=True, queue="cpu")
@inject
def multiply(number: int, factor: Annotated[int, Depends(get_factor)]) -> int:
    return number * factor

async def main():
    async with forge, forge.worker(["cpu"]):
        print(await (await multiply.aenqueue(4)).aresult(timeout=30))
"""


@pytest.mark.processes
def test_in_a_child_process(tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text(CPU_TASK)
    command = "import asyncio, heavy; asyncio.run(heavy.main())"
    done = subprocess.run(
        [sys.executable, "-c", command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "20\n", done.stderr
    assert (tmp_path / "log").read_text() == "multiply opened\nclosed\n"


def test_what_a_job_cannot_have_is_refused_when_the_task_is_made(forge: Forge) -> None:
    def get_user(request: Request) -> str: ...
    def get_page(page: int = Query(1)) -> int: ...
    def get_both(user: Annotated[str, Depends(get_user)]) -> str: ...

    for dependency, name in ((get_user, "request"), (get_page, "page"), (get_both, "request")):

        def task(found: Annotated[Any, Depends(dependency)]) -> None: ...

        with pytest.raises(BadOption, match=f"takes '{name}' from a request"):
            inject(task)

    def waits(session: AsyncSessionDep) -> None: ...

    with pytest.raises(BadOption, match="make the task `async def`, or the dependency `def`"):
        inject(waits)
    with pytest.raises(BadOption, match="no parameter with Depends"):
        inject(lambda: None)

    def send(session: PlainSessionDep) -> None: ...

    with pytest.raises(BadOption, match=r"below @forge\.task"):
        inject(forge.task(inject(send)))


def test_an_awaited_override_of_a_plain_task_fails_the_job(forge: Forge) -> None:
    @forge.task(max_attempts=1)
    @inject
    def send(session: PlainSessionDep) -> None: ...

    app = FastAPI()
    app.dependency_overrides[get_plain_session] = get_session
    job = send.enqueue()
    with overrides_of(app):
        forge.drain().run()
    with pytest.raises(JobFailed, match="a `def` task cannot depend on it"):
        job.result()


def test_a_task_without_inject_names_it(forge: Forge) -> None:
    def send(session: PlainSessionDep) -> None: ...
    def bill(tenant: str = Depends(get_plain_session)) -> None: ...

    for function in (send, bill):
        with pytest.raises(BadOption, match=r"put @inject of forge_jobs\.integrations"):
            forge.task(function)
