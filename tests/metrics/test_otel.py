"""OpenTelemetry spans from enqueue to run, read through the exporter of the SDK."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from forge_jobs import Context, Dead, Forge, Snooze
from forge_jobs.core.selection import Filter
from forge_jobs.otel import instrument


class SpanProbe:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.spans(name)
        return span


@pytest.fixture
def probe() -> SpanProbe:
    return SpanProbe()


@pytest.fixture
def forge() -> Iterator[Forge]:
    made = Forge("memory://")
    yield made
    made.close()


async def test_the_run_is_a_child_of_the_enqueue(forge: Forge, probe: SpanProbe) -> None:
    inner: list[int] = []

    @forge.task(queue="mail", kind="send")
    async def send(to: str) -> None:
        inner.append(trace.get_current_span().get_span_context().span_id)

    instrument(forge, tracer_provider=probe.provider)
    instrument(forge, tracer_provider=probe.provider)
    with probe.provider.get_tracer("test").start_as_current_span("request") as request:
        job = await send.aenqueue("a@b.c")
    await forge.drain()
    produced, consumed = probe.one("send mail"), probe.one("process mail")
    assert produced.parent is not None
    assert produced.parent.span_id == request.get_span_context().span_id
    assert consumed.parent is not None
    assert consumed.parent.span_id == produced.context.span_id
    assert consumed.context.trace_id == request.get_span_context().trace_id
    assert (produced.kind, consumed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert inner == [consumed.context.span_id]
    for span, operation in ((produced, "send"), (consumed, "process")):
        attributes = dict(span.attributes or {})
        assert attributes["messaging.system"] == "forge_jobs"
        assert attributes["messaging.destination.name"] == "mail"
        assert attributes["messaging.operation.name"] == operation
        assert attributes["messaging.operation.type"] == operation
        assert attributes["messaging.message.id"] == job.id
        assert attributes["forge_jobs.job.kind"] == "send"
        assert "a@b.c" not in str(attributes)


async def test_jobs_enqueued_together_are_sibling_spans(forge: Forge, probe: SpanProbe) -> None:
    @forge.task(queue="q")
    async def work(n: int) -> None: ...

    instrument(forge, tracer_provider=probe.provider)
    await work.aenqueue_many([(1,), (2,)])
    assert [span.parent for span in probe.spans("send q")] == [None, None]
    page = await forge.store.jobs.page(Filter(), limit=5)
    assert len({record.trace for record in page.jobs}) == 2


async def test_jobs_of_a_run_belong_to_its_trace(forge: Forge, probe: SpanProbe) -> None:
    @forge.task(queue="second")
    async def second() -> None: ...

    @forge.task(queue="first")
    async def first(ctx: Context) -> None:
        await ctx.aenqueue(second)
        ctx.on_done(second)

    instrument(forge, tracer_provider=probe.provider)
    await first.aenqueue()
    await forge.drain()
    run = probe.one("process first")
    sent = probe.spans("send second")
    assert [span.parent.span_id for span in sent if span.parent] == [run.context.span_id] * 2
    followed = {span.parent.span_id for span in probe.spans("process second") if span.parent}
    assert followed == {span.context.span_id for span in sent}


async def test_a_link_begins_a_trace_of_its_own(forge: Forge, probe: SpanProbe) -> None:
    @forge.task(queue="q")
    def work() -> None: ...

    instrument(forge, tracer_provider=probe.provider, link=True)
    await work.aenqueue()
    await forge.drain()
    produced, consumed = probe.one("send q"), probe.one("process q")
    assert consumed.parent is None
    assert consumed.context.trace_id != produced.context.trace_id
    assert [link.context.span_id for link in consumed.links] == [produced.context.span_id]


@pytest.mark.parametrize(
    ("error", "status", "outcome"),
    [
        (ValueError("x"), StatusCode.ERROR, None),
        (Dead("x"), StatusCode.ERROR, "dead"),
        (Snooze(5), StatusCode.UNSET, "snooze"),
    ],
)
async def test_errors_are_recorded(
    forge: Forge, probe: SpanProbe, error: Exception, status: StatusCode, outcome: str | None
) -> None:
    @forge.task(queue="q")
    async def work() -> None:
        raise error

    instrument(forge, tracer_provider=probe.provider)
    await work.aenqueue()
    await forge.drain()
    span = probe.one("process q")
    assert span.status.status_code is status
    attributes = dict(span.attributes or {})
    assert attributes.get("forge_jobs.job.outcome") == outcome
    if status is StatusCode.ERROR:
        assert attributes["error.type"] == type(error).__name__
        assert [event.name for event in span.events] == ["exception"]


async def test_a_job_without_a_trace_and_one_with_nonsense_run(
    forge: Forge, probe: SpanProbe
) -> None:
    @forge.task(queue="q")
    async def work() -> int:
        return 1

    plain = await work.aenqueue()
    await forge.store.jobs.enqueue([msgspec.structs.replace(work.bind(), trace="nonsense")])
    instrument(forge, tracer_provider=probe.provider)
    assert (await forge.drain()).done == 2
    assert await plain.aresult() == 1
    assert [span.parent for span in probe.spans("process q")] == [None, None]


def test_nothing_is_imported_unless_asked_for(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from forge_jobs import Forge\n"
        f"forge = Forge('sqlite:///{tmp_path}/jobs.db')\n"
        "@forge.task()\n"
        "async def work() -> None: ...\n"
        "work.enqueue()\n"
        "asyncio.run(forge.drain())\n"
        "print(any(name.startswith('opentelemetry') for name in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"
