"""Reference of the Prometheus metrics, from the text that an example store renders."""

import re

from forge_jobs.core.vitals import LIFETIME, Vitals
from forge_jobs.ops.prometheus import BUCKET_BOUNDS_S, StoreSnapshot, render

from .markdown import code, document, table

_LABELS = {
    "forge_jobs": "queue, status",
    "forge_queue_": "queue",
    "forge_scope_": "scope",
    "forge_rate_limit_": "scope",
    "forge_workers": "",
    "forge_worker_": "worker, host_id",
    "forge_store_": "",
    "forge_job": "queue, kind",
}


def metrics() -> list[tuple[str, str, str]]:
    """Name, type and meaning of each metric."""
    text = render(StoreSnapshot((), (), (), Vitals(at=LIFETIME, host_id="")))
    found = re.findall(r"^# HELP (\S+) (.+)\n# TYPE \S+ (\S+)$", text, re.M)
    return [(name, kind, meaning) for name, meaning, kind in found]


def page() -> str:
    """The page of the metrics."""
    rows = [(code(name), kind, _labels(name), meaning) for name, kind, meaning in metrics()]
    bounds = ", ".join(f"{bound:g}" for bound in BUCKET_BOUNDS_S)
    return document(
        "# Metrics in the Prometheus format",
        "Answered under `/metrics` by Mission Control and by `forge worker --health-port`, and as "
        "text by `prometheus_text`. What is counted and how: [metrics.md](../metrics.md).",
        table(("metric", "type", "labels", "meaning"), rows),
        "A histogram has the series `_bucket`, `_sum` and `_count`. Its buckets, in seconds: "
        f"{bounds}, and `+Inf`.",
    )


def _labels(name: str) -> str:
    if name == "forge_jobs":
        return _LABELS[name]
    return next(labels for start, labels in _LABELS.items() if start != "forge_jobs"
                and name.startswith(start))  # fmt: skip
