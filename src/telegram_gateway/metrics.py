"""The gateway's metrics, as Prometheus text. Labels contain slugs and outcomes, never secrets."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final, TypeAlias

Samples: TypeAlias = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]

# What each metric says, by name.
METRICS: Final = {
    "gateway_updates_total": "Updates received, by bot and outcome.",
    "gateway_sends_total": "Calls of the Bot API, by bot and result.",
    "gateway_flood_wait_seconds_total": "Seconds of waiting that Telegram requested with 429.",
    "gateway_token_refused": "1 while Telegram refuses the token of a bot.",
    "gateway_webhook_pending_updates": "Updates pending at Telegram, from getWebhookInfo.",
    "gateway_webhook_last_error_timestamp_seconds": "When Telegram last failed to deliver.",
    "gateway_door_seconds": "Time from a webhook request to its response.",
    "gateway_janitor_total": "Jobs and rows that the janitor removed or recovered, by step.",
}
_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)


class GatewayMetrics:
    """Counters and one histogram of this process."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self._gauges: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._request_buckets = [0] * (len(_BOUNDS_S) + 1)
        self._request_sum_s = 0.0

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self._counts[name, tuple(sorted(labels.items()))] += by  # pyright: ignore[reportArgumentType]

    def set_gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._gauges[name, tuple(sorted(labels.items()))] = value

    def value(self, name: str, **labels: str) -> float:
        """The current value of a counter or a gauge."""
        key = name, tuple(sorted(labels.items()))
        return self._gauges[key] if key in self._gauges else self._counts[key]

    def observe_request(self, seconds: float) -> None:
        """Add the duration of one webhook request to the histogram."""
        self._request_sum_s += seconds
        self._request_buckets[bisect_left(_BOUNDS_S, seconds)] += 1

    def render(self) -> str:
        """All metrics in the Prometheus text format."""
        lines = [*_lines(self._counts, "counter"), *_lines(self._gauges, "gauge")]
        name = "gateway_door_seconds"
        lines += [f"# HELP {name} {METRICS[name]}", f"# TYPE {name} histogram"]
        counts = list(accumulate(self._request_buckets))
        bounds = [*(f"{bound:g}" for bound in _BOUNDS_S), "+Inf"]
        for bound, count in zip(bounds, counts, strict=True):
            lines.append(f'{name}_bucket{{le="{bound}"}} {count}')
        lines += [f"{name}_sum {self._request_sum_s:.6f}", f"{name}_count {counts[-1]}"]
        return "\n".join(lines) + "\n"


def _lines(samples: Samples, metric_type: str) -> Iterator[str]:
    described: set[str] = set()
    for (name, labels), value in sorted(samples.items()):
        if name not in described:
            described.add(name)
            yield f"# HELP {name} {METRICS.get(name, name)}"
            yield f"# TYPE {name} {metric_type}"
        label_text = ",".join(f'{key}="{text}"' for key, text in labels)
        yield f"{name}{{{label_text}}} {value:.15g}"
