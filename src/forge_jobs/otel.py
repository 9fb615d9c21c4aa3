"""OpenTelemetry: a span for each enqueue and one for each run, linked by the trace context that is
stored with the job (extra ``[otel]``).

Imported only on request: ``from forge_jobs.otel import instrument``. Attributes follow the semantic
conventions for messaging. Arguments and results never become attributes; exceptions are recorded.
"""

from collections.abc import Generator
from typing import Final
from weakref import WeakSet

from msgspec import structs

from forge_jobs.app import Forge
from forge_jobs.core.job import Enqueued, NewJob
from forge_jobs.core.outcome import Dead, Failed, JobOutcome

from .engine.running.context import Context
from .engine.steps.signals import is_suspended

try:
    from opentelemetry import trace
    from opentelemetry.context import Context as TraceContext
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError(
        "forge_jobs.otel needs opentelemetry-api: pip install 'forge-jobs[otel]'"
    ) from error

_PARENT: Final = "traceparent"
_STATE: Final = "tracestate"
_MAX_STATE: Final = 512
_W3C: Final = TraceContextTextMapPropagator()
_INSTRUMENTED: Final[WeakSet[Forge]] = WeakSet()


def instrument(
    forge: Forge, *, tracer_provider: TracerProvider | None = None, link: bool = False
) -> None:
    """Make spans for the jobs of a Forge; a second call for the same Forge does nothing.

    The span of a run is a child of the span of its enqueue. With ``link`` it starts a trace of its
    own that links to it, which suits jobs that run hours later. Without ``tracer_provider`` the
    global one is used.

    >>> from forge_jobs.otel import instrument
    >>> instrument(forge)
    """
    if forge in _INSTRUMENTED:
        return
    _INSTRUMENTED.add(forge)
    spans = _TraceHooks(trace.get_tracer("forge_jobs", tracer_provider=tracer_provider), link=link)
    forge.around_enqueue(spans.send)
    forge.around_run(spans.process)


class _TraceHooks:
    """The two hooks: around each enqueue and around each run."""

    def __init__(self, tracer: Tracer, *, link: bool) -> None:
        self._tracer = tracer
        self._link = link

    def send(self, job: NewJob) -> Generator[NewJob, Enqueued, None]:
        # Not the current span: jobs enqueued together are siblings, not parent and child.
        span = self._tracer.start_span(
            f"send {job.queue}", kind=SpanKind.PRODUCER, attributes=_attributes("send", job.queue)
        )
        span.set_attribute("forge_jobs.job.kind", job.kind)
        span.set_attribute("messaging.message.body.size", len(job.payload))
        try:
            stored = yield structs.replace(job, trace=_encode(span))
            span.set_attribute("messaging.message.id", stored.id)
            span.set_attribute("forge_jobs.job.duplicate", stored.duplicate)
        except Exception as error:
            _fail(span, error)
            raise
        finally:
            span.end()

    def process(self, ctx: Context) -> Generator[None, None, None]:
        job = ctx.job
        origin = _decode(job.trace)
        links = [Link(trace.get_current_span(origin).get_span_context())] if origin else []
        with self._tracer.start_as_current_span(
            f"process {job.queue}",
            context=TraceContext() if self._link else origin,
            kind=SpanKind.CONSUMER,
            links=links if self._link else [],
            attributes=_attributes("process", job.queue),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            span.set_attribute("messaging.message.id", job.id)
            span.set_attribute("forge_jobs.job.kind", job.kind)
            span.set_attribute("forge_jobs.job.attempt", job.attempts)
            try:
                yield
            except JobOutcome as outcome:
                span.set_attribute("forge_jobs.job.outcome", type(outcome).__name__.lower())
                if isinstance(outcome, Dead | Failed):
                    _fail(span, outcome)
                raise
            except BaseException as error:
                if is_suspended(error):
                    span.set_attribute("forge_jobs.job.outcome", "parked")
                else:
                    _fail(span, error)
                raise


def _attributes(operation: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": "forge_jobs",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(StatusCode.ERROR)
    span.record_exception(error)


def _encode(span: Span) -> str | None:
    """The trace context of a span as it is stored: traceparent, then tracestate if any."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context=trace.set_span_in_context(span, TraceContext()))
    parent, state = carrier.get(_PARENT), carrier.get(_STATE, "")
    if parent is None:
        return None
    return f"{parent} {state}" if 0 < len(state) <= _MAX_STATE else parent


def _decode(text: str | None) -> TraceContext | None:
    if not text:
        return None
    parent, _, state = text.partition(" ")
    return _W3C.extract({_PARENT: parent, _STATE: state}, context=TraceContext())
