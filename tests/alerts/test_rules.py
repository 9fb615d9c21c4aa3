"""Alert rules: checks, hysteresis, quiet times, and what is announced. All of it is pure."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from forge_jobs.core.alert_rule import AlertRule, new_rule, shown_url
from forge_jobs.core.alert_values import ALERT_KIND, Observed, QueueFacts, values_of
from forge_jobs.core.alerts import (
    MAX_CLOSED,
    MAX_OPEN,
    AlertState,
    Phase,
    advance,
    announced,
    announcements,
)
from forge_jobs.core.counters import Minute
from forge_jobs.core.errors import BadCron, BadOption, ForgeError
from forge_jobs.core.instant import MINUTE, SECOND, from_datetime
from forge_jobs.core.quiet_times import checked_quiet, is_quiet
from forge_jobs.core.webhook import signed_headers, verify_webhook

URL = "https://hooks.example/T0/secret-path"
NOW = from_datetime(datetime(2026, 3, 2, 12, tzinfo=UTC), field="now")  # a Monday


def backlog(**options: object) -> AlertRule:
    given: dict[str, Any] = {
        "above": 100,
        "below": 50,
        "hold": 60,
        "clear": 30,
        "url": URL,
        **options,
    }
    return new_rule("full", "backlog", **given)


def run(rule: AlertRule, *steps: tuple[float, float]) -> AlertState:
    """The state after looks at (seconds, backlog of the queue mail)."""
    state = AlertState()
    for at_s, value in steps:
        state = advance(rule, state, {"mail": value}, NOW + round(at_s * SECOND))
    return state


def test_an_episode_opens_when_the_value_has_been_above_for_long_enough() -> None:
    assert not run(backlog(), (0, 101), (59, 101)).open
    opened = run(backlog(), (0, 101), (60, 120))
    assert opened.open["mail"].value == 120
    assert opened.open["mail"].opened_at == NOW + 60 * SECOND


def test_a_dip_under_the_threshold_starts_the_time_again() -> None:
    assert not run(backlog(), (0, 101), (30, 100), (60, 101), (119, 101)).open


def test_an_episode_stays_between_the_two_thresholds_and_closes_below_the_lower_one() -> None:
    opened = [(0.0, 200.0), (60.0, 200.0)]
    assert run(backlog(), *opened, (90, 51), (500, 51)).open
    assert run(backlog(), *opened, (90, 50), (119, 50)).open
    assert run(backlog(), *opened, (90, 50), (100, 60), (121, 50)).open
    closed = run(backlog(), *opened, (90, 50), (120, 50))
    assert not closed.open
    assert closed.closed[0].closed_at == NOW + 120 * SECOND


def test_a_disabled_rule_and_a_queue_that_is_gone_close_their_episodes() -> None:
    state = run(backlog(), (0, 200), (60, 200))
    assert advance(backlog(), state, {}, NOW + 61 * SECOND).closed
    off = replace(backlog(), enabled=False)
    assert advance(off, state, {"mail": 200}, NOW + 61 * SECOND).closed


def test_the_same_look_twice_makes_the_same_episode() -> None:
    rule, before = backlog(), run(backlog(), (0, 200))
    at = NOW + 60 * SECOND
    first = advance(rule, before, {"mail": 200}, at)
    assert advance(rule, before, {"mail": 200}, at) == first
    assert advance(rule, first, {"mail": 200}, at) == first


def test_what_is_kept_of_a_rule_is_bounded() -> None:
    rule = backlog(hold=0, clear=0)
    many = {f"q{n:04}": 200.0 for n in range(500)}
    state = advance(rule, AlertState(), many, NOW)
    assert len(state.open) == MAX_OPEN
    for step in range(1, 12):
        state = advance(rule, state, dict.fromkeys(many, 200.0 * (step % 2)), NOW + step * SECOND)
    assert len(state.closed) <= 2 * MAX_CLOSED


def test_each_phase_is_announced_until_its_job_is_known() -> None:
    rule = backlog(hold=0, clear=0)
    state = run(rule, (0, 200))
    (due,) = announcements(rule, state, NOW)
    assert due.phase is Phase.OPENED
    state = announced(state, due.episode.id, Phase.OPENED, "JOB1")
    assert announcements(rule, state, NOW) == []
    state = advance(rule, state, {"mail": 0}, NOW + SECOND)
    (due,) = announcements(rule, state, NOW)
    assert due.phase is Phase.CLOSED
    assert announcements(rule, announced(state, due.episode.id, Phase.CLOSED, "JOB2"), NOW) == []


def test_an_episode_that_closed_before_it_was_announced_is_announced_twice_in_order() -> None:
    rule = backlog(hold=0, clear=0)
    state = run(rule, (0, 200), (1, 0))
    assert [one.phase for one in announcements(rule, state, NOW)] == [Phase.OPENED, Phase.CLOSED]


def test_quiet_times_hold_messages_back_and_drop_those_of_episodes_that_ended_in_them() -> None:
    rule = backlog(hold=0, clear=0, quiet=["11:00-13:00"])
    opened, ended = run(rule, (0, 200)), run(rule, (0, 200), (60, 0))
    later = NOW + 3 * 60 * MINUTE
    assert announcements(rule, opened, NOW) == []
    assert [one.phase for one in announcements(rule, opened, later)] == [Phase.OPENED]
    assert announcements(rule, ended, later) == []


def test_without_a_receiver_nothing_is_announced_then_or_later() -> None:
    rule = backlog(hold=0, clear=0, url=None)
    state = run(rule, (0, 200), (1, 0))
    assert state.closed
    assert announcements(rule, state, NOW) == []
    assert announcements(backlog(), state, NOW) == []


@pytest.mark.parametrize(
    ("window", "zone", "moment", "expected"),
    [
        ("22:00-07:00", "UTC", "2026-03-02T23:00", True),
        ("22:00-07:00", "UTC", "2026-03-02T06:59", True),
        ("22:00-07:00", "UTC", "2026-03-02T07:00", False),
        ("22:00-07:00", "Europe/Paris", "2026-03-02T21:30", True),
        ("sat,sun 00:00-24:00", "UTC", "2026-03-01T23:59", True),
        ("sat,sun 00:00-24:00", "UTC", "2026-03-02T00:00", False),
        ("fri 22:00-07:00", "UTC", "2026-03-07T06:00", True),
        ("fri 22:00-07:00", "UTC", "2026-03-06T06:00", False),
        ("fri-mon 09:00-10:00", "UTC", "2026-03-02T09:30", True),
    ],
)
def test_quiet_windows(window: str, zone: str, moment: str, expected: bool) -> None:
    at = from_datetime(datetime.fromisoformat(moment).replace(tzinfo=UTC), field="at")
    assert is_quiet(checked_quiet([window], zone), zone, at) is expected


@pytest.mark.parametrize("window", ["", "22-07", "25:00-26:00", "someday 10:00-11:00"])
def test_a_bad_quiet_window_is_refused_with_an_example(window: str) -> None:
    with pytest.raises(BadOption, match="22:00-07:00"):
        checked_quiet([window], "UTC")


def test_values_of_queues() -> None:
    facts = {
        "mail": QueueFacts(waiting=7, oldest_due=NOW - 90 * SECOND, workers=2),
        "video": QueueFacts(waiting=1),
        "pulled": QueueFacts(for_workers=False),
    }
    observed = Observed(now=NOW, queues=facts)
    assert values_of(new_rule("a", "backlog"), observed) == {"mail": 7, "video": 1, "pulled": 0}
    assert values_of(new_rule("a", "longest_wait", queue="mail"), observed) == {"mail": 90}
    assert values_of(new_rule("a", "no_worker"), observed) == {"mail": 0, "video": 1, "pulled": 0}


def test_the_dead_rate_counts_whole_minutes_of_the_window_and_no_alert_jobs() -> None:
    minutes = [
        Minute(at=NOW - 10 * MINUTE, queue="mail", kind="send", dead=50),
        Minute(at=NOW - MINUTE, queue="mail", kind="send", done=9, dead=1),
        Minute(at=NOW - MINUTE, queue="mail", kind=ALERT_KIND, dead=9),
    ]
    observed = Observed(now=NOW, queues={"mail": QueueFacts()}, minutes=minutes)
    assert values_of(new_rule("a", "dead_rate"), observed) == {"mail": 0.1}
    assert values_of(new_rule("a", "dead_rate", min_jobs=11), observed) == {"mail": 0.0}


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({"condition": "sad"}, "dead_rate, longest_wait"),
        ({"condition": "dead_rate", "above": "200%"}, "a share from 0 to 1"),
        ({"above": "many"}, "above='many' is not a number"),
        ({"above": 5, "below": 6}, "below=6 is more than above=5"),
        ({"condition": "missed_schedule", "queue": "mail"}, "leave it out"),
        ({"schedule": "nightly"}, "is for missed_schedule"),
        ({"url": "ftp://host/x"}, "use https"),
        ({"url": "https://user:word@host/"}, "without a user"),
        ({"secret": "short"}, "16 to 500"),
        ({"hold": "60d"}, "longer than"),
        ({"min_jobs": 0}, "min_jobs=0"),
    ],
)
def test_a_bad_field_is_named(fault: dict[str, object], text: str) -> None:
    given: dict[str, Any] = {"name": "a", "condition": "backlog", **fault}
    with pytest.raises(ForgeError, match=text):
        new_rule(**given)
    with pytest.raises(BadCron):
        new_rule("a", "backlog", tz="Mars/Base")


def test_errors_and_texts_of_rules_hold_neither_address_nor_secret() -> None:
    rule = backlog(secret="whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ=")
    assert "secret" not in repr(rule)
    assert shown_url(rule.url) == "https://hooks.example/…"
    with pytest.raises(BadOption) as raised:
        backlog(secret="short-and-known")
    assert "short-and-known" not in str(raised.value)


def test_a_receiver_tells_a_signed_message_from_a_changed_or_old_one() -> None:
    secret, body = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ=", b'{"a":1}'
    headers = signed_headers(secret, "e1.opened", 1_000, body)
    assert verify_webhook(secret, headers, body, now_s=1_010) == "e1.opened"
    changed = {**headers, "webhook-id": "e2.opened"}
    for bad_headers, bad_body, now_s in [
        (headers, b'{"a":2}', 1_010),
        (changed, body, 1_010),
        (headers, body, 1_301),
        ({}, body, 1_010),
    ]:
        with pytest.raises(BadOption):
            verify_webhook(secret, bad_headers, bad_body, now_s=now_s)
    with pytest.raises(BadOption, match="secrets"):
        verify_webhook("another secret of 16", headers, body, now_s=1_010)
