"""Durations and instants."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.core.errors import BadDuration, BadTime
from forge_jobs.core.instant import SECOND, after, from_datetime, seconds, to_datetime


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0), (5, 5), (1.5, 1.5), ("30s", 30), ("10m", 600), ("1h30m", 5_400), ("2d", 172_800),
        ("1w", 604_800), ("250ms", 0.25), ("1.5h", 5_400), (" 1h 30m ", 5_400), ("1H", 3_600),
        (timedelta(minutes=2), 120),
    ],
)  # fmt: skip
def test_durations(value: Any, expected: float) -> None:
    assert seconds(value, field="delay") == pytest.approx(expected)


@pytest.mark.parametrize(
    "value",
    [
        "", "10", "soon", "1x", "-5s", "5s x", "h", "1h-30m", "101y", -1, -0.001, float("nan"),
        float("inf"), timedelta(seconds=-1), None, True, [], 200 * 365 * 86_400,
    ],
)  # fmt: skip
def test_bad_durations_name_the_field_and_the_remedy(value: Any) -> None:
    with pytest.raises(BadDuration, match="delay=") as caught:
        seconds(value, field="delay")
    assert '"10m"' in str(caught.value)


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(BadTime, match="run_at") as caught:
        from_datetime(datetime(2026, 1, 2, 3, 4), field="run_at")
    assert "time zone" in str(caught.value)


def test_zones_are_respected() -> None:
    paris = datetime(2026, 1, 2, 4, 4, tzinfo=timezone(timedelta(hours=1)))
    utc = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    assert from_datetime(paris, field="at") == from_datetime(utc, field="at")


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_instants_and_datetimes_are_the_same_thing(moment: datetime) -> None:
    assert to_datetime(from_datetime(moment, field="at")) == moment


def test_after_rounds_to_whole_microseconds() -> None:
    assert after(10, 1.5) == 10 + 1_500_000
    assert after(10, 0.1 + 0.2) == 10 + 300_000
    assert isinstance(after(10, 0.3), int)
    assert SECOND == 1_000_000
