"""What the gateway counts, as Prometheus text. Labels hold slugs and outcomes, never secrets."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final, TypeAlias

Samples: TypeAlias = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]

_HELP: Final = {
    "gateway_updates_total": "Updates at the door, by bot and outcome.",
    "gateway_sends_total": "Calls of the Bot API, by bot and result.",
    "gateway_flood_wait_seconds_total": "Seconds that Telegram asked to wait with 429.",
    "gateway_token_refused": "1 while Telegram refuses the token of a bot.",
    "gateway_webhook_pending_updates": "Updates that wait at Telegram, as getWebhookInfo says.",
    "gateway_webhook_last_error_timestamp_seconds": "When Telegram last failed to deliver.",
    "gateway_door_seconds": "From the request to the answer at the door.",
    "gateway_janitor_total": "What the janitor removed or recovered.",
}
_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)


class GatewayMetrics:
    """Counters and one histogram of this process."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self._shown: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._receiver = [0] * (len(_BOUNDS_S) + 1)
        self._door_sum = 0.0

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self._counts[name, tuple(sorted(labels.items()))] += by  # pyright: ignore[reportArgumentType]

    def show(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._shown[name, tuple(sorted(labels.items()))] = value

    def value(self, name: str, **labels: str) -> float:
        """The present value of a counter or a gauge."""
        place = name, tuple(sorted(labels.items()))
        return self._shown[place] if place in self._shown else self._counts[place]

    def receiver(self, seconds: float) -> None:
        """One request took that long."""
        self._door_sum += seconds
        self._receiver[bisect_left(_BOUNDS_S, seconds)] += 1

    def page(self) -> str:
        """Everything, in Prometheus' text format."""
        lines = [*_lines(self._counts, "counter"), *_lines(self._shown, "gauge")]
        name = "gateway_door_seconds"
        lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} histogram"]
        counts = list(accumulate(self._receiver))
        bounds = [*(f"{bound:g}" for bound in _BOUNDS_S), "+Inf"]
        for bound, count in zip(bounds, counts, strict=True):
            lines.append(f'{name}_bucket{{le="{bound}"}} {count}')
        lines += [f"{name}_sum {self._door_sum:.6f}", f"{name}_count {counts[-1]}"]
        return "\n".join(lines) + "\n"


def _lines(samples: Samples, sort: str) -> Iterator[str]:
    told: set[str] = set()
    for (name, labels), value in sorted(samples.items()):
        if name not in told:
            told.add(name)
            yield f"# HELP {name} {_HELP.get(name, name)}"
            yield f"# TYPE {name} {sort}"
        shown = ",".join(f'{key}="{text}"' for key, text in labels)
        yield f"{name}{{{shown}}} {value:.15g}"
