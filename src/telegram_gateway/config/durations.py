"""Parses Go's durations, which existing deployments use: ``168h``, ``1h30m``, ``500ms``."""

import re
from typing import Final

_UNIT_S: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3_600.0,
}
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


def go_seconds(text: str) -> float | None:
    """A duration in seconds, may be negative; None if the text is not a duration.

    >>> go_seconds("1h30m")
    5400.0
    """
    body = text[1:] if text[:1] in ("+", "-") else text
    sign = -1.0 if text.startswith("-") else 1.0
    if body == "0":
        return 0.0
    parts = _PART.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        return None
    return sign * sum(float(number) * _UNIT_S[unit] for number, unit in parts)
