"""Cron expressions: ticks, refused expressions, and days on which clocks are changed."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge_jobs.core import cron
from forge_jobs.core.errors import BadCron
from forge_jobs.core.instant import SECOND, Instant, from_datetime, to_datetime

MINUTE = timedelta(minutes=1)


def at(text: str) -> Instant:
    return from_datetime(datetime.fromisoformat(text).replace(tzinfo=UTC), field="at")


def following(expression: str, since: str, count: int = 3, zone: str = "UTC") -> list[str]:
    clock, tick, found = cron.read(expression, zone), at(since), list[str]()
    for _ in range(count):
        next_tick = clock.next_after(tick)
        assert next_tick is not None
        assert next_tick > tick
        tick = next_tick
        found.append(f"{to_datetime(tick):%m-%d %H:%M:%S}")
    return found


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("*/20 * * * *", ["01-01 09:20:00", "01-01 09:40:00", "01-01 10:00:00"]),
        ("*/20 * * * * *", ["01-01 09:00:20", "01-01 09:00:40", "01-01 09:01:00"]),
        ("30 0 9 * * *", ["01-01 09:00:30", "01-02 09:00:30", "01-03 09:00:30"]),
        ("5/20 9 * * *", ["01-01 09:05:00", "01-01 09:25:00", "01-01 09:45:00"]),
        ("0 9-17/4 * * *", ["01-01 13:00:00", "01-01 17:00:00", "01-02 09:00:00"]),
        ("0 9 * * mon-fri", ["01-02 09:00:00", "01-05 09:00:00", "01-06 09:00:00"]),
        ("0 9 * * Monday,Thurs", ["01-05 09:00:00", "01-08 09:00:00", "01-12 09:00:00"]),
        ("0 0 * * sat-sun", ["01-03 00:00:00", "01-04 00:00:00", "01-10 00:00:00"]),
        ("0 0 1 FEB,mar ?", ["02-01 00:00:00", "03-01 00:00:00", "02-01 00:00:00"]),
        ("0 0 ? * 5", ["01-02 00:00:00", "01-09 00:00:00", "01-16 00:00:00"]),
        ("0 0 L * *", ["01-31 00:00:00", "02-28 00:00:00", "03-31 00:00:00"]),
        ("0 0 * * 1#2", ["01-12 00:00:00", "02-09 00:00:00", "03-09 00:00:00"]),
        ("0 0 * * 5L", ["01-30 00:00:00", "02-27 00:00:00", "03-27 00:00:00"]),
        ("0 0 13 * fri", ["01-02 00:00:00", "01-09 00:00:00", "01-13 00:00:00"]),
        ("0 0 29 2 *", ["02-29 00:00:00", "02-29 00:00:00", "02-29 00:00:00"]),
        ("@hourly", ["01-01 10:00:00", "01-01 11:00:00", "01-01 12:00:00"]),
        ("@daily", ["01-02 00:00:00", "01-03 00:00:00", "01-04 00:00:00"]),
        ("@weekly", ["01-04 00:00:00", "01-11 00:00:00", "01-18 00:00:00"]),
        ("@monthly", ["02-01 00:00:00", "03-01 00:00:00", "04-01 00:00:00"]),
        ("@yearly", ["01-01 00:00:00", "01-01 00:00:00", "01-01 00:00:00"]),
        ("  0   9\t* * *  ", ["01-02 09:00:00", "01-03 09:00:00", "01-04 09:00:00"]),
    ],
)
def test_expressions_mean_what_people_expect(expression: str, wanted: list[str]) -> None:
    assert following(expression, "2026-01-01 09:00:00") == wanted


@pytest.mark.parametrize("sunday", ["0", "7", "sun", "SUNDAY"])
def test_low_sunday_is_0_and_7_and_monday_is_1(sunday: str) -> None:
    assert following(f"0 0 * * {sunday}", "2026-01-01", 1) == ["01-04 00:00:00"]
    assert following("0 0 * * 1", "2026-01-01", 1) == ["01-05 00:00:00"]


def test_a_tick_is_later_than_the_moment_asked_for() -> None:
    clock = cron.read("* * * * * *")
    assert clock.next_after(5 * SECOND) == 6 * SECOND
    assert clock.next_after(5 * SECOND + 1) == 6 * SECOND
    assert list(clock.ticks(0, 2 * SECOND)) == [SECOND, 2 * SECOND]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "has 0 fields"),
        ("* * *", "write 5 fields"),
        ("0 0 0 1 1 * 2026", "year field is not supported"),
        ("@reboot", "where your program starts"),
        ("@often", "@hourly"),
        ("61 * * * *", "minute '61' is wrong"),
        ("0 24 * * *", "hour '24' is wrong"),
        ("? * * * *", "minute '?' is wrong"),
        ("0 0 30 2 *", "day-of-month '30'"),
        ("0 0 * 13 *", "month '13'"),
        ("0 0 * * 8", "0 and 7 are Sunday"),
        ("0 0 * * fri-mon", "fri-sun,mon"),
        ("*/0 * * * *", "minute '*/0'"),
        ("x" * 300, "at most 256 characters"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_remedy(expression: str, message: str) -> None:
    with pytest.raises(BadCron) as refused:
        cron.read(expression)
    assert message in str(refused.value)


def test_something_else_than_text_is_refused() -> None:
    with pytest.raises(BadCron, match="is a text"):
        cron.read(["* * * * *"])  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", ["Europe/Pariss", "", "../UTC", "Mars/Base", "Europe", "/etc"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(BadCron, match="is not known"):
        cron.read("@daily", zone)


def test_M3_the_zone_is_utc_and_never_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    assert following("0 9 * * *", "2026-07-01", 1) == ["07-01 09:00:00"]
    with pytest.raises(BadCron):
        cron.read("@daily", "localtime")


@given(st.text(alphabet="0123456789*/,-?#LWlw @abcmonsunfrijan", max_size=24))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        clock = cron.read(text, "Europe/Paris")
    except BadCron:
        return
    tick = clock.next_after(at("2026-03-28 23:00:00"))
    assert tick is None or tick > at("2026-03-28 23:00:00")


# ------------------------------------------------------------------------------ changes of clocks


def rows_of_the_page(root: Path) -> Iterator[tuple[str, str, str, str]]:
    for line in (root / "docs" / "cron.md").read_text().splitlines():
        row = re.fullmatch(r"\| (\w+/\w+) \| (\S+) \| `([^`]*)` \| (.*) \|", line)
        if row:
            yield row[1], row[2], row[3], row[4]


def test_daylight_saving_days_are_as_documented(project_root: Path) -> None:
    rows = list(rows_of_the_page(project_root))
    assert len({row[0] for row in rows}) >= 3
    for zone, day, expression, wanted in rows:
        begin = datetime.fromisoformat(day)
        first, last = (
            from_datetime(moment.replace(tzinfo=ZoneInfo(zone)), field="day") - 1
            for moment in (begin, begin + timedelta(days=1))
        )
        ticks = cron.read(expression, zone).ticks(first, last)
        shown = " ".join(f"{to_datetime(tick):%H:%M}" for tick in ticks)
        assert shown == wanted.replace("never", ""), (zone, day, expression)


ZONES = (
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Havana",
    "Asia/Beirut",
    "Africa/Casablanca",
    "America/St_Johns",
    "Pacific/Chatham",
)
FIXED = ({0, 15, 45}, {0, 1, 2, 3})
INTERVAL = ({0, 20, 40}, set(range(24)))


def changes(zone: ZoneInfo) -> Iterator[datetime]:
    """The days of 2025 and 2026 on which the offset changes."""
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    while moment.year < 2027:
        following = moment + timedelta(hours=12)
        if moment.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            yield moment
        moment = following


def walls(zone: ZoneInfo, since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """Every minute of real time with its wall-clock time."""
    found: list[tuple[datetime, datetime]] = []
    while since < until:
        found.append((since, since.astimezone(zone).replace(tzinfo=None)))
        since += MINUTE
    return found


def fixed_by_hand(minutes: list[tuple[datetime, datetime]]) -> set[datetime]:
    """Each wall-clock time once: the first time it shows, or the first minute after its gap."""
    wanted: set[datetime] = set()
    wall, last = minutes[0][1], max(shown for _, shown in minutes)
    while wall <= last:
        if wall.minute in FIXED[0] and wall.hour in FIXED[1]:
            exact = [moment for moment, shown in minutes if shown == wall]
            late = [moment for moment, shown in minutes if shown > wall]
            wanted.add(exact[0] if exact else late[0])
        wall += MINUTE
    return wanted


@pytest.mark.parametrize("name", ZONES)
def test_clock_changes_agree_with_a_count_by_hand(name: str) -> None:
    zone = ZoneInfo(name)
    fixed = cron.read("0,15,45 0,1,2,3 * * *", name)
    interval = cron.read("*/20 * * * *", name)
    seen = 0
    for change in changes(zone):
        seen += 1
        since, until = change - timedelta(hours=10), change + timedelta(hours=30)
        minutes = walls(zone, since, until)
        span = from_datetime(since, field="since") - 1, from_datetime(until, field="until") - 1
        by_hand = {moment for moment, wall in minutes if wall.minute in INTERVAL[0]}
        assert {to_datetime(tick) for tick in interval.ticks(*span)} == by_hand
        ticks = [to_datetime(tick) for tick in fixed.ticks(*span)]
        assert len(ticks) == len(set(ticks))
        assert set(ticks) == fixed_by_hand(minutes), change
    assert seen >= 4


def test_a_day_that_never_was_runs_at_the_next_midnight() -> None:
    # Samoa went from the 29th of December 2011 straight to the 31st.
    assert following("0 12 30 12 *", "2011-12-29", 1, "Pacific/Apia") == ["12-30 10:00:00"]


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("*/90 * * * *", "minute '*/90'"),
        ("*/60 * * * *", "minute '*/60'"),
        ("5/60 * * * *", "minute '5/60'"),
        ("0,*/90 * * * *", "minute '0,*/90'"),
        ("*/60 * * * * *", "second '*/60'"),
        ("0 */24 * * *", "hour '*/24'"),
        ("0 0 */31 * *", "day-of-month '*/31'"),
        ("0 0 1 */12 *", "month '*/12'"),
        ("0 0 * * */7", "day-of-week '*/7'"),
        ("*/999999999999999999999 * * * *", "minute"),
    ],
)
def test_u15a_a_step_as_long_as_its_field_is_refused(expression: str, named: str) -> None:
    with pytest.raises(BadCron, match=re.escape(named)) as refused:
        cron.read(expression)
    assert "leaves only the first" in str(refused.value)


@pytest.mark.parametrize(
    "expression",
    ["*/59 * * * *", "*/45 * * * *", "0 */23 * * *", "0 0 */30 * *", "0 0 1 */11 *", "0 0 * * */6"],
)
def test_u15a_a_step_within_its_field_is_accepted(expression: str) -> None:
    cron.read(expression)
