"""Which functions can become tasks, and what they need for it."""

import functools
from typing import Any

import pytest

from forge_jobs import BadOption, DeadJob, Forge, KindTaken
from forge_jobs.core.job import Successor

forge_of_this_module = Forge("memory://")


@forge_of_this_module.task(cpu=True, kind="crunch")
def crunch(n: int) -> int:
    return n * n


def test_a_kind_is_registered_once(forge: Forge) -> None:
    @forge.task
    def send() -> None: ...

    with pytest.raises(KindTaken) as caught:

        @forge.task(kind="send")
        def other() -> None: ...

    assert "kind 'send' is already registered for" in str(caught.value)
    assert "test_a_kind_is_registered_once.<locals>.send" in str(caught.value)
    assert "@forge.task(kind=...)" in str(caught.value)
    assert forge.tasks["send"] is send


def test_a_kind_taken_by_a_lower_level_handler(forge: Forge) -> None:
    class Echo:
        kind = "echo"

        async def run(self, ctx: Any, payload: Any) -> Any:
            return payload

    forge.registry.register(Echo())
    with pytest.raises(KindTaken, match="'echo' is registered twice"):
        forge.task(kind="echo")(lambda: None)
    assert "echo" not in forge.tasks


def test_cpu_tasks_can_be_found_by_a_child(forge: Forge) -> None:
    handler = forge_of_this_module.handler("crunch")
    assert handler is not None
    assert handler.run_in == "child"
    assert handler.child is not None
    assert (handler.child.module, handler.child.file) == (__name__, None)
    assert crunch(4) == 16


def test_cpu_needs_a_function_that_can_be_imported(forge: Forge) -> None:
    with pytest.raises(BadOption) as caught:

        @forge.task(cpu=True)
        def nested() -> None: ...

    assert "task 'nested': cpu=True needs a function that a child process can import" in str(
        caught.value
    )
    assert "top level of a module" in str(caught.value)
    with pytest.raises(BadOption, match="top level"):
        forge.task(cpu=True, kind="anonymous")(lambda: None)
    with pytest.raises(BadOption, match="write def, not async def"):

        @forge.task(cpu=True)
        async def on_the_loop() -> None: ...

    assert forge.tasks == {}


def test_nested_functions_may_be_tasks_but_cannot_run_in_a_child(forge: Forge) -> None:
    @forge.task
    def nested() -> None: ...

    handler = forge.handler("nested")
    assert handler is not None
    assert handler.child is None


@pytest.mark.parametrize("thing", [5, int, "send"])
def test_only_functions_become_tasks(forge: Forge, thing: Any) -> None:
    with pytest.raises(BadOption, match=r"@forge\.task needs a function"):
        forge.task(kind="x")(thing)


def test_generators_and_tasks_are_refused(forge: Forge) -> None:
    def many() -> Any:
        yield 1

    async def many_async() -> Any:
        yield 1

    for function in (many, many_async):
        with pytest.raises(BadOption, match="is a generator; a task returns one value"):
            forge.task(function)

    @forge.task
    def send() -> None: ...

    with pytest.raises(BadOption, match="is a task already"):
        forge.task(send)


def test_wrapped_functions_and_callables_keep_their_signature(forge: Forge) -> None:
    def plain(n: int) -> int:
        return n + 1

    @functools.wraps(plain)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    class Adder:
        def __call__(self, n: int) -> int:
            return n + 2

    assert forge.task(kind="wrapped")(wrapped).bind(1).payload == b'{"n":1}'
    assert forge.task(kind="adder")(Adder())(3) == 5
    assert forge.task(kind="part")(functools.partial(plain, n=4)).bind().payload == b"{}"


def test_on_dead_is_stored_with_each_job(forge: Forge) -> None:
    @forge.task(queue="alerts", max_attempts=2)
    def alert(job: DeadJob) -> None: ...

    @forge.task(on_dead=alert)
    def send() -> None: ...

    assert send.bind().on_dead == Successor("alert", "alerts", 2)
    assert send.enqueue().refresh().record.on_dead == Successor("alert", "alerts", 2)


def test_on_dead_must_take_the_job(forge: Forge) -> None:
    @forge.task
    def wrong(text: str) -> None: ...

    @forge.task
    def more(job: DeadJob, other: int) -> None: ...

    @forge.task
    def loose(**anything: Any) -> None: ...

    for task in (wrong, more):
        with pytest.raises(BadOption, match="must take one argument named 'job'"):
            forge.task(on_dead=task, kind="send")(lambda: None)
    assert forge.task(on_dead=loose, kind="send")(lambda: None)
    with Forge("memory://") as other, pytest.raises(BadOption, match="task of the same Forge"):
        other.task(on_dead=loose, kind="send")(lambda: None)


class Service:
    def send(self, to: str) -> str:
        return f"{type(self).__name__} to {to}"

    @classmethod
    def make(cls, to: str) -> None: ...

    @staticmethod
    def plain(to: str) -> str:
        return to


def test_u15b_a_method_is_refused_with_a_remedy(forge: Forge) -> None:
    with pytest.raises(BadOption, match="is a method, and 'self' would become") as refused:
        forge.task(Service.send)
    assert "@staticmethod" in str(refused.value)
    with pytest.raises(BadOption, match="is a method"):

        class Local:  # pyright: ignore[reportUnusedClass]
            @forge.task
            def send(self) -> None: ...

    with pytest.raises(BadOption, match="needs a function"):
        forge.task(Service.__dict__["make"])
    assert not forge.tasks


async def test_u15b_bound_and_static_methods_are_tasks(forge: Forge) -> None:
    bound = forge.task(Service().send)

    class Spaces:
        @forge.task(kind="static")
        @staticmethod
        def plain(to: str) -> str:
            return to

        @forge.task(kind="function")
        def by_itself(to: str) -> str:
            return to

    jobs = [
        await bound.aenqueue("a@b.c"),
        await Spaces.plain.aenqueue("x"),
        await Spaces.by_itself.aenqueue("y"),
    ]
    await forge.drain()
    assert [await job.aresult(timeout=10) for job in jobs] == ["Service to a@b.c", "x", "y"]
