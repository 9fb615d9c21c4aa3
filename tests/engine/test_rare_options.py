"""Rare options on their way: from a request over the claim to the run, in a child process too."""

from types import SimpleNamespace
from typing import Any

import pytest

from forge_jobs.core.job import NewJob
from forge_jobs.engine.requests.job_requests import JobRequests
from forge_jobs.engine.requests.opened_store import OpenedStore
from forge_jobs.engine.requests.published_kinds_cache import PublishedKindsCache
from forge_jobs.engine.running.context import RunEnvironment
from forge_jobs.engine.running.executors.child_main import ChildJob
from forge_jobs.engine.running.executors.child_wire import StartRun, decode_to_child, encode
from forge_jobs.engine.running.executors.child_worker import start_message
from forge_jobs.engine.running.registry import ChildTarget, Handler, HandlerRegistry, RunIn
from forge_jobs.engine.running.run import Run
from forge_jobs.kit.clock import SYSTEM_CLOCK
from forge_jobs.testing.clock import MovableClock
from tests.engine.rig import DEADLINE_S, Rig, a_claim

Options = dict[str, Any] | None


class OptionedTask:
    """A task of the application with rare options of its own."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def bind_payload(self, payload: object) -> NewJob:
        return NewJob(kind="work", queue="q", options=self._options)


def run_of(clock: MovableClock, own: Options, default: Options) -> Run:
    environment = RunEnvironment(lambda: "HOST", 7, clock, None, lambda kind, value: None)  # type: ignore[arg-type,return-value]
    steps = SimpleNamespace(owner=lambda: 3, store_time=clock)
    in_flight: Any = SimpleNamespace(environment=environment, steps=steps)
    handler = Handler(
        kind="work",
        run_in=RunIn.CHILD,
        call=lambda data, make: None,
        child=ChildTarget("application", None, "work"),
        options=default,
    )
    local_queue: Any = None
    return Run(a_claim(options=own), handler, in_flight, local_queue, clock.mono())


@pytest.mark.parametrize(
    ("own", "default", "effective"),
    [
        (None, None, None),
        ({"a": 1}, None, {"a": 1}),
        (None, {"a": 1}, {"a": 1}),
        ({"a": 1, "b": None}, {"b": 2, "c": 3}, {"a": 1, "b": None, "c": 3}),
    ],
)
def test_the_options_of_a_job_come_before_those_of_its_handler(
    own: Options, default: Options, effective: Options
) -> None:
    assert run_of(MovableClock(), own, default).options == effective


@pytest.mark.parametrize(
    ("task", "given", "stored"),
    [
        (None, {"options": {"a": 1}}, {"a": 1}),
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, {"priority": 3}, {"a": 1}),
        ({"a": 1, "b": 2}, {"options": {"b": None, "c": 3}}, {"a": 1, "b": None, "c": 3}),
    ],
)
async def test_a_request_by_kind_adds_its_options_to_those_of_the_task(
    rig: Rig, task: Options, given: dict[str, Any], stored: Options
) -> None:
    kinds = PublishedKindsCache(OpenedStore(rig.store), SYSTEM_CLOCK)
    requests = JobRequests(HandlerRegistry(), kinds, tasks={"work": OptionedTask(task)})
    job = requests.request("work", {}, given)
    assert (job.options, job.priority) == (stored, given.get("priority", 0))


def test_a_child_has_the_options_and_the_start_of_its_run() -> None:
    clock = MovableClock()
    run = run_of(clock, {"b": None}, {"a": {"deep": [1, "\0"]}, "b": 2})
    clock.advance(90)
    clock.jump(-7_200)  # A wall clock that is set does not move the start.
    start = decode_to_child(encode(start_message(run, 1)))
    assert isinstance(start, StartRun)
    parent: Any = None
    before = SYSTEM_CLOCK.mono()
    job = ChildJob(start, parent)
    assert job.options == {"a": {"deep": [1, "\0"]}, "b": None}
    assert before - 90 <= job.started_at <= before - 90 + DEADLINE_S


def test_handler_objects_have_defaults_too() -> None:
    class Work:
        kind = "work"

        async def run(self, ctx: object, payload: object) -> None: ...

    registry = HandlerRegistry()
    registry.register(Work(), timeout_s=3.0, options={"a": 1})
    handler = registry.get("work")
    assert handler is not None
    assert (handler.timeout_s, handler.options) == (3.0, {"a": 1})
