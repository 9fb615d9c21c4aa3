"""Names, rates and keys of limits: the arithmetic that every backend shares."""

import pytest
from msgspec import structs

from forge_jobs import BadOption
from forge_jobs.core.instant import SECOND
from forge_jobs.core.limit_key import limit_fields, limit_key
from forge_jobs.core.limits import (
    UNBOUNDED,
    Declared,
    Limit,
    key_bucket,
    limit_of,
    next_start_at,
    rate_of,
    rate_text,
    refilled,
    room,
    spent,
    with_declared,
)

NOW = 1_000 * SECOND
CAPPED = Limit(name="task:send", concurrency=3)
RATED = Limit(name="task:send", rate_per_s=2.0, burst=4.0, tokens=4.0, at=NOW)


@pytest.mark.parametrize(
    ("text", "per_s", "burst"),
    [
        ("50/m", 50 / 60, 1.0),
        ("100/s", 100.0, 100.0),
        ("10/30s", 1 / 3, 1.0),
        ("7200 / h", 2.0, 2.0),
        ("1/d", 1 / 86_400, 1.0),
    ],
)
def test_rates_as_people_write_them(text: str, per_s: float, burst: float) -> None:
    assert rate_of(text) == (pytest.approx(per_s), pytest.approx(burst))
    assert rate_of(rate_text(per_s))[0] == pytest.approx(per_s)


@pytest.mark.parametrize("text", ["", "50", "fast", "0/s", "5/0s", "-1/s", "9999999/s", 5, None])
def test_what_is_no_rate(text: object) -> None:
    with pytest.raises(BadOption, match="rate="):
        rate_of(text)


@pytest.mark.parametrize(
    ("payload", "key"),
    [
        (b'{"host":"example.com"}', "task:send/example.com"),
        (b'{"host":42}', "task:send/42"),
        (b'{"host":null}', "task:send/null"),
        (b"{}", "task:send/null"),
        (b'{"host":{"a":1}}', 'task:send/{"a":1}'),
        (b"[1]", "task:send/null"),
    ],
)
def test_the_key_of_a_job_is_read_from_its_arguments(payload: bytes, key: str) -> None:
    assert limit_key("send", "args.host", payload) == key
    assert limit_of(key) == "task:send"


def test_a_path_may_go_deeper() -> None:
    assert limit_key("send", "args.user.id", b'{"user":{"id":"u1"}}') == "task:send/u1"
    assert limit_key("send", "args.user.id", b'{"user":5}') == "task:send/null"


@pytest.mark.parametrize("value", ["x" * 201, "a\\u0007b", ""])
def test_unwieldy_values_are_represented_by_a_digest(value: str) -> None:
    key = limit_key("send", "args.host", b'{"host":"%s"}' % value.encode())
    assert len(key) == len("task:send/") + 64
    assert key == limit_key("send", "args.host", b'{"host":"%s"}' % value.encode())


def test_what_a_limit_means_for_a_job() -> None:
    assert limit_fields("send", None, b"{}") == {}
    assert limit_fields("send", CAPPED, b"{}") == {"track": True}
    per_host = structs.replace(CAPPED, per="args.host")
    assert limit_fields("send", per_host, b'{"host":"a"}') == {"limit_key": key_bucket("send", "a")}
    both = structs.replace(per_host, rate_per_s=1.0)
    assert limit_fields("send", both, b'{"host":"a"}')["track"] is True


def test_room_under_a_cap() -> None:
    assert room(None, 99, now=NOW, asked=5).left == UNBOUNDED
    found = room(CAPPED, 1, now=NOW, asked=5)
    assert (found.left, found.may_prefetch) == (2, False)
    assert room(CAPPED, 7, now=NOW, asked=5).left == 0
    assert room(structs.replace(CAPPED, per="args.x"), 7, now=NOW, asked=5).left == UNBOUNDED


def test_room_under_a_rate() -> None:
    found = room(RATED, 0, now=NOW, asked=4)
    assert (found.left, found.may_prefetch) == (4, True)
    assert not room(RATED, 0, now=NOW, asked=5).may_prefetch
    empty = spent(RATED, 4, NOW)
    assert room(empty, 0, now=NOW, asked=1).left == 0
    assert next_start_at(empty, NOW) == NOW + SECOND // 2
    assert room(empty, 0, now=NOW + SECOND // 2, asked=1).left == 1
    assert next_start_at(empty, NOW + SECOND // 2) is None
    assert refilled(empty, NOW - 5 * SECOND).tokens == 0
    assert refilled(empty, NOW + 500 * SECOND).tokens == 4


def test_a_persons_numbers_stay_and_starts_are_not_given_twice() -> None:
    told = Declared(name="task:send", rate_per_s=8.0, burst=8.0)
    first = with_declared(None, told, NOW)
    assert (first.tokens, first.burst) == (8.0, 8.0)
    used = spent(first, 8, NOW)
    again = with_declared(used, structs.replace(told, burst=20.0), NOW)
    assert (again.burst, again.tokens) == (20.0, 0.0)
    assert with_declared(again, structs.replace(told, burst=20.0), NOW) is again
    set_by_hand = structs.replace(again, rate_per_s=1.0, by_operator=True)
    kept = with_declared(set_by_hand, structs.replace(told, scopes=("smtp",)), NOW)
    assert (kept.rate_per_s, kept.scopes) == (1.0, ("smtp",))
