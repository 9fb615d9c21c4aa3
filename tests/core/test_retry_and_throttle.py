"""Retry back-off and the throttle gate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.core.errors import BadDuration, BadOption
from forge_jobs.core.instant import SECOND
from forge_jobs.core.retry import DEFAULT_BACKOFF, Backoff, Retry
from forge_jobs.core.throttle import OPEN, Gate, succeeded, throttle_delay_s, throttled

NOW = 1_700_000_000 * SECOND


def test_the_default_curve_doubles_from_fifteen_seconds_to_an_hour() -> None:
    delays = [DEFAULT_BACKOFF.delay_s(n) for n in range(1, 11)]
    assert delays == [15, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_a_curve_survives_any_number_of_failures() -> None:
    assert DEFAULT_BACKOFF.delay_s(10_000) == 3_600
    assert DEFAULT_BACKOFF.delay_s(0) == 15


@given(failures=st.integers(1, 100), roll=st.floats(0, 1, exclude_max=True))
def test_A27_jitter_stays_within_its_share(failures: int, roll: float) -> None:
    plain = DEFAULT_BACKOFF.delay_s(failures)
    spread = DEFAULT_BACKOFF.jittered_s(failures, roll)
    assert plain * 0.9 <= spread <= plain * 1.1


def test_exact_steps_repeat_the_last_without_jitter() -> None:
    retry = Retry(delays=["30s", "2m", 600])
    assert [retry.backoff.jittered_s(n, 0.9) for n in range(1, 6)] == [30, 120, 600, 600, 600]
    assert Retry(delays=["30s"], jitter=0.5).backoff.jitter == 0.5


def test_only_and_never() -> None:
    retry = Retry(only=(OSError,), never=(FileNotFoundError,))
    assert retry.allows(ConnectionError())
    assert not retry.allows(FileNotFoundError())
    assert not retry.allows(ValueError())
    assert Retry().allows(ValueError())


def test_one_class_and_a_list_of_classes_are_as_good_as_a_tuple() -> None:
    retry = Retry(only=[OSError, ValueError], never=FileNotFoundError)
    assert retry.allows(ConnectionError())
    assert retry.allows(ValueError())
    assert not retry.allows(FileNotFoundError())
    assert not retry.allows(KeyError())


@pytest.mark.parametrize("wrong", ["OSError", 3, ["OSError"], [OSError()], int])
def test_what_is_no_exception_class_is_refused_when_declared(wrong: object) -> None:
    with pytest.raises(BadOption, match=r"Retry\(only=.*exception classes"):
        Retry(only=wrong)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match=r"Retry\(never=.*exception classes"):
        Retry(never=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"jitter": -0.1}, {"jitter": 1.1}, {"base": "2h"}])
def test_nonsense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(BadOption, match="Retry"):
        Retry(**options)  # type: ignore[arg-type]


def test_a_bad_step_names_its_field() -> None:
    with pytest.raises(BadDuration, match="delays"):
        Retry(delays=["soon"])


def test_the_delay_is_retry_after_then_the_back_off_then_a_minute() -> None:
    curve = Backoff(base_s=60, max_s=1_800)
    assert throttle_delay_s(OPEN, 1.2, curve) == 1.2
    assert throttle_delay_s(OPEN, 0.0, curve) == 0.0
    assert throttle_delay_s(OPEN, None, None) == 60
    delays = [throttle_delay_s(Gate(None, count), None, curve) for count in range(7)]
    assert delays == [60, 120, 240, 480, 960, 1800, 1800]


def test_a_closed_gate_counts_no_second_event() -> None:
    gate = throttled(OPEN, NOW, 30)
    assert gate == Gate(NOW + 30 * SECOND, 1)
    assert throttled(gate, NOW + 29 * SECOND, 500) == gate
    assert throttled(gate, NOW + 30 * SECOND, 5) == Gate(NOW + 35 * SECOND, 2)


def test_the_count_is_bounded() -> None:
    assert throttled(Gate(None, 30), NOW, 5).count == 30


def test_a_gate_is_closed_until_its_instant() -> None:
    gate = Gate(NOW, 1)
    assert gate.closed(NOW - 1)
    assert not gate.closed(NOW)
    assert not OPEN.closed(NOW)


def test_L3_a_success_resets_after_two_open_minutes() -> None:
    gate = Gate(NOW, 3)
    assert succeeded(gate, NOW - 1) == gate
    assert succeeded(gate, NOW + 120 * SECOND - 1) == gate
    assert succeeded(gate, NOW + 120 * SECOND) == OPEN
    assert succeeded(OPEN, NOW) == OPEN


def test_the_example_of_the_original() -> None:
    curve = Backoff(base_s=60, max_s=1_800)
    gate = throttled(OPEN, NOW, throttle_delay_s(OPEN, None, curve))
    assert gate == Gate(NOW + 60 * SECOND, 1)
    later = NOW + 61 * SECOND
    gate = throttled(gate, later, throttle_delay_s(gate, None, curve))
    assert gate == Gate(NOW + 181 * SECOND, 2)
    assert succeeded(gate, NOW + 182 * SECOND) == gate
    assert succeeded(gate, NOW + 302 * SECOND) == OPEN


@pytest.mark.parametrize(
    ("retry", "shown"),
    [
        (Retry(), "Retry(base='15s', max='3600s')"),
        (Retry(base="1s", jitter=0), "Retry(base='1s', max='3600s', jitter=0)"),
        (Retry(delays=["30s", "2m"]), "Retry(delays=['30s', '120s'])"),
        (
            Retry(only=OSError, never=(KeyError,), total=7),
            "Retry(base='15s', max='3600s', only=(OSError,), never=(KeyError,), total=7)",
        ),
    ],
)
def test_a_rule_shows_the_call_that_makes_it(retry: Retry, shown: str) -> None:
    assert repr(retry) == shown
