"""Parts of pages without a browser: sparklines, ranges, texts."""

from datetime import UTC, datetime, timedelta

import pytest

from forge_jobs.core.instant import from_datetime
from forge_jobs.ops.queue_activity import QueueMinute
from forge_jobs.web.pages.audit import detail_text
from forge_jobs.web.pages.ranges import adjacent_ranges, parse_range
from forge_jobs.web.pages.sparklines import HEIGHT, sparkline
from forge_jobs.web.rendering import countdown_element, rate, time_element

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def minutes(*minutes: tuple[int, int]) -> list[QueueMinute]:
    return [
        QueueMinute(at=NOON + timedelta(minutes=index), succeeded=succeeded, failed=failed)
        for index, (succeeded, failed) in enumerate(minutes)
    ]


def test_a_sparkline_has_a_bar_for_each_busy_minute() -> None:
    drawn = sparkline(minutes((0, 0), (10, 0), (1_000, 0), (0, 1)))
    assert drawn is not None
    assert drawn.succeeded.count("M") == 2
    assert drawn.failed.count("M") == 1
    assert f"v-{HEIGHT - 1}h" in drawn.succeeded, "the busiest minute is as high as the picture"
    assert drawn.failed.startswith(f"M12 {HEIGHT}v-1h"), "one failure among a thousand is seen"
    assert drawn.label == "last 4 min: 1,010 done, 1 failed, at most 1,000 a minute"


def test_bars_of_one_minute_are_stacked_within_the_height() -> None:
    drawn = sparkline(minutes((50, 50)))
    assert drawn is not None
    succeeded_height = int(drawn.succeeded.partition("v-")[2].partition("h")[0])
    above = int(drawn.failed.partition("v-")[2].partition("h")[0])
    assert drawn.failed.startswith(f"M0 {HEIGHT - succeeded_height}v-")
    assert succeeded_height + above <= HEIGHT


def test_without_counts_there_is_no_sparkline() -> None:
    assert sparkline(minutes((0, 0), (0, 0))) is None
    assert sparkline([]) is None


def test_adjacent_ranges_of_a_range() -> None:
    now = from_datetime(NOON, field="now")
    chosen = parse_range({"from": "2026-01-31T09:00Z", "until": "2026-01-31T10:00Z"}, now)
    near = adjacent_ranges(chosen, now)
    assert near["earlier"] == {"from": "2026-01-31T08:30Z", "until": "2026-01-31T09:30Z"}
    assert near["later"] == {"from": "2026-01-31T09:30Z", "until": "2026-01-31T10:30Z"}
    assert near["closer"] == {"from": "2026-01-31T09:15Z", "until": "2026-01-31T09:45Z"}
    assert near["wider"] == {"from": "2026-01-31T08:30Z", "until": "2026-01-31T10:30Z"}
    for params in near.values():
        assert parse_range(params, now).name == ""


@pytest.mark.parametrize(
    ("since", "until_", "missing"),
    [
        ("2026-01-31T11:58Z", "2026-01-31T12:00Z", "closer"),
        ("2026-01-05T00:00Z", "2026-01-25T00:00Z", "wider"),
        ("2026-01-31T11:30Z", "2026-01-31T12:30Z", "later"),
    ],
)
def test_an_adjacent_range_outside_the_limits_is_absent(
    since: str, until_: str, missing: str
) -> None:
    now = from_datetime(NOON, field="now")
    near = adjacent_ranges(parse_range({"from": since, "until": until_}, now), now)
    assert missing not in near
    assert len(near) == 3


def test_points_of_a_range_are_one_step_apart() -> None:
    chosen = parse_range({"range": "5m"}, from_datetime(NOON, field="now"))
    assert len(chosen.point_times) == 5
    assert {b - a for a, b in zip(chosen.point_times, chosen.point_times[1:], strict=False)} == {
        60.0
    }
    assert chosen.point_times[0] == chosen.since.timestamp()


def test_texts_of_the_audit_and_of_expected_times() -> None:
    assert [detail_text(value) for value in (1_000, True, "mail")] == ["1,000", "yes", "mail"]
    assert "<time data-until datetime=" in countdown_element(NOON)
    assert countdown_element(None) == time_element(None)


@pytest.mark.parametrize(
    ("per_s", "shown"),
    [
        (0, "0"),
        (0.000548, "1.97/h"),
        (1 / 60, "1/min"),
        (0.5, "30/min"),
        (12.34, "12.3/s"),
        (4321, "4,321/s"),
    ],
)
def test_a_rate_has_the_unit_in_which_it_can_be_read(per_s: float, shown: str) -> None:
    assert rate(per_s) == shown
