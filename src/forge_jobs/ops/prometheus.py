"""The state of a store in the Prometheus text format (exposition format 0.0.4).

``prometheus_text`` reads the store, ``render`` formats. Gauges are current values. Counters and
histograms count since the store was created and are the same in every process, because they come
from the store. A bucket counts the samples below its bound.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from forge_jobs.core.counters import Minute
from forge_jobs.core.histogram import Histogram
from forge_jobs.core.status import JobStatus
from forge_jobs.core.vitals import LIFETIME, Vitals
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.store.store import Store

from . import metrics, queries
from .rate_limits import RateLimitView, rate_limits
from .store_time import store_now
from .views import QueueView, WorkerView

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BUCKET_BOUNDS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0,
    100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0, 100_000.0,
)  # fmt: skip

Labels = Mapping[str, str]
Sample = tuple[Labels, float]

_EVENTS: Final = {
    "enqueued": "Jobs stored.",
    "started": "Claims made by workers.",
    "done": "Jobs that ended well.",
    "retried": "Runs that failed or were lost with their worker and will be repeated.",
    "dead": "Jobs that will not be tried again.",
    "cancelled": "Jobs cancelled by a person or by their expiry.",
    "throttled": "Runs that ended with a throttle.",
    "released": "Claims released without spending an attempt.",
}
_DURATIONS: Final = {
    "waited": ("forge_job_wait_seconds", "From the moment a job was due to its start."),
    "ran": ("forge_job_run_seconds", "How long handlers ran."),
    "took": ("forge_job_total_seconds", "From the enqueue of a job to its success."),
}


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """What ``render`` needs; ``exchanges`` holds the round trips since the store was created."""

    queues: Sequence[QueueView]
    workers: Sequence[WorkerView]
    totals: Sequence[Minute]
    exchanges: Vitals
    scopes: Mapping[str, bool] = field(default_factory=dict[str, bool])
    permits: Sequence[RateLimitView] = ()


async def prometheus_text(store: Store, *, clock: Clock = SYSTEM_CLOCK) -> str:
    """Read a store and return its metrics in the Prometheus text format.

    >>> text = asyncio.run(prometheus_text(forge.store))
    >>> "forge_jobs" in text
    True
    """
    queues, workers, totals, exchanges, gates, permits = await asyncio.gather(
        queries.queues(store, clock=clock),
        queries.workers(store, clock=clock),
        metrics.totals(store),
        store.metrics.vitals(since=LIFETIME, until=LIFETIME + 1),
        store.limits.gates(),
        rate_limits(store),
    )
    now = await store_now(store, clock)
    scopes = {scope: gate.closed(now) for scope, gate in gates.items()}
    lifetime = exchanges[0] if exchanges else Vitals(at=LIFETIME, host_id="")
    return render(StoreSnapshot(queues, workers, totals, lifetime, scopes, permits))


def render(snapshot: StoreSnapshot) -> str:
    """Format a snapshot."""
    lines = [*_queue_lines(snapshot.queues), *_scope_lines(snapshot.scopes, snapshot.permits)]
    lines += [*_worker_lines(snapshot.workers), *_store_lines(snapshot.exchanges)]
    lines += _counter_lines(snapshot.totals)
    lines += _duration_lines(snapshot.totals)
    return "\n".join(lines) + "\n"


def _queue_lines(queues: Sequence[QueueView]) -> Iterator[str]:
    yield from _metric_lines(
        "forge_jobs", "gauge", "Jobs by queue and state.",
        (
            ({"queue": queue.name, "status": status}, queue.counts.get(status, 0))
            for queue in queues
            for status in JobStatus
        ),
    )  # fmt: skip
    gauges = {
        "oldest_due_seconds": ("For how long the longest waiting job has been due.", "lag_s"),
        "slots": ("Jobs that may run at once over the cluster.", "slots"),
        "slots_live": ("Slots that living workers have taken up.", "slots_live"),
        "workers": ("Living worker processes that serve the queue.", "workers"),
        "paused": ("1 while an operator keeps the queue closed.", "paused"),
    }
    for name, (help_text, attribute) in gauges.items():
        samples = (({"queue": queue.name}, float(getattr(queue, attribute))) for queue in queues)
        yield from _metric_lines(f"forge_queue_{name}", "gauge", help_text, samples)
    closed = (({"queue": q.name}, float(q.throttled_until is not None)) for q in queues)
    yield from _metric_lines(
        "forge_queue_throttled", "gauge", "1 while the queue's gate is closed.", closed
    )


def _scope_lines(scopes: Mapping[str, bool], permits: Sequence[RateLimitView]) -> Iterator[str]:
    closed = (({"scope": scope}, float(is_closed)) for scope, is_closed in sorted(scopes.items()))
    help_text = "1 while a throttled scope is closed; only scopes that were closed lately."
    yield from _metric_lines("forge_scope_throttled", "gauge", help_text, closed)
    available = (({"scope": view.scope}, float(view.available)) for view in permits)
    yield from _metric_lines(
        "forge_rate_limit_permits", "gauge", "Permits of a rate limit at this moment.", available
    )


def _worker_lines(workers: Sequence[WorkerView]) -> Iterator[str]:
    yield from _metric_lines(
        "forge_workers", "gauge", "Living worker processes.", [({}, len(workers))]
    )
    gauges = {
        "running_jobs": ("Jobs that run in the process.", "running"),
        "memory_bytes": ("Resident memory.", "memory_bytes"),
        "cpu_cores": ("Cores kept busy between the last two heartbeats.", "cores"),
        "disk_used_ratio": ("Used share of the file system it works in.", "disk_share"),
        "heartbeat_age_seconds": ("Time since its last heartbeat.", "beat_age_s"),
    }
    for name, (help_text, attribute) in gauges.items():
        samples = (
            ({"worker": view.label, "host_id": view.host_id}, float(getattr(view, attribute)))
            for view in workers
        )
        yield from _metric_lines(f"forge_worker_{name}", "gauge", help_text, samples)


def _store_lines(exchanges: Vitals) -> Iterator[str]:
    name = "forge_store_exchange_seconds"
    yield f"# HELP {name} Round trips of workers to the store."
    yield f"# TYPE {name} histogram"
    yield from _histogram_lines(name, {}, exchanges.exchange)
    help_text = "Round trips of workers to the store that failed."
    yield from _metric_lines(
        "forge_store_exchange_errors_total", "counter", help_text, [({}, exchanges.errors)]
    )


def _counter_lines(totals: Sequence[Minute]) -> Iterator[str]:
    for event, help_text in _EVENTS.items():
        samples = ((_job_labels(total), getattr(total, event)) for total in totals)
        yield from _metric_lines(f"forge_jobs_{event}_total", "counter", help_text, samples)


def _duration_lines(totals: Sequence[Minute]) -> Iterator[str]:
    for attribute, (name, help_text) in _DURATIONS.items():
        yield f"# HELP {name} {help_text}"
        yield f"# TYPE {name} histogram"
        for total in totals:
            histogram: Histogram = getattr(total, attribute)
            if histogram.buckets:
                yield from _histogram_lines(name, _job_labels(total), histogram)


def _histogram_lines(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    for bound in BUCKET_BOUNDS_S:
        yield _sample_line(f"{name}_bucket", {**labels, "le": f"{bound:g}"}, histogram.up_to(bound))
    yield _sample_line(f"{name}_bucket", {**labels, "le": "+Inf"}, histogram.count)
    yield _sample_line(f"{name}_sum", labels, histogram.sum_s)
    yield _sample_line(f"{name}_count", labels, histogram.count)


def _job_labels(total: Minute) -> Labels:
    return {"queue": total.queue, "kind": total.kind}


def _metric_lines(name: str, kind: str, help_text: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield _sample_line(name, labels, value)


def _sample_line(name: str, labels: Labels, value: float) -> str:
    label_text = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    number = int(value) if value == int(value) else value
    return f"{name}{{{label_text}}} {number}" if label_text else f"{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
