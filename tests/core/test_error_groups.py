"""What a group keeps of its failures, and how much at most."""

from forge_jobs.core.error_groups import (
    HOURS_KEPT,
    MAX_GROUPS,
    MINUTES_KEPT,
    OTHER,
    ErrorFilter,
    ErrorGroup,
    FailureCount,
    GroupState,
    bounded,
    matches,
    merge_all,
    merged,
    resolved,
)
from forge_jobs.core.instant import MINUTE

NOW = 1_700_000_000_000_000


def failure(group: str = "g", at: int = NOW, **fields: object) -> FailureCount:
    given: dict[str, object] = {"kind": "send", "queue": "mail", **fields}
    return FailureCount(group=group, at=at, **given)  # pyright: ignore[reportArgumentType]


def group(*failures: FailureCount) -> ErrorGroup:
    return merged(None, failures)


def test_the_trend_is_bounded() -> None:
    record = group(*(failure(at=NOW + n * MINUTE) for n in range(60 * 24 * 30)))
    assert len(record.minutes.counts) == MINUTES_KEPT
    assert len(record.hours.counts) == HOURS_KEPT
    assert record.count == 60 * 24 * 30
    assert record.count_since(record.last_at - 59 * MINUTE) == 60


def test_a_late_failure_does_not_become_the_newest() -> None:
    record = merged(group(failure(latest="new")), [failure(at=NOW - MINUTE, latest="old")])
    assert (record.latest, record.last_at, record.first_at) == ("new", NOW, NOW - MINUTE)


def test_a_failure_before_the_resolution_is_no_return() -> None:
    record = resolved(group(failure()), at=NOW + MINUTE, by="ann")
    late = merged(record, [failure(at=NOW + 1)])
    assert (late.state, late.count) == (GroupState.RESOLVED, 2)
    again = merged(late, [failure(at=NOW + 3 * MINUTE), failure(at=NOW + 2 * MINUTE)])
    assert (again.state, again.returned_at) == (GroupState.RETURNED, NOW + 2 * MINUTE)
    assert merged(again, [failure(at=NOW + 9 * MINUTE)]).returned_at == NOW + 2 * MINUTE


def test_a_failure_that_was_stored_while_it_was_resolved_is_a_return() -> None:
    assert resolved(group(failure(at=NOW + 1)), at=NOW, by="ann").returned_at == NOW + 1


def test_a_full_store_counts_new_groups_as_other() -> None:
    known = {f"g{n}": group(failure(f"g{n}")) for n in range(MAX_GROUPS - 1)}
    failures = [failure(name) for name in ("g1", "new", "newer", "new", "newest")]
    kept = bounded(failures, known, MAX_GROUPS - len(known))
    assert [one.group for one in kept] == ["g1", "new", OTHER, "new", OTHER]
    counts = {one.id: one.count for one in merge_all(known, kept)}
    assert counts == {"g1": 2, "new": 2, OTHER: 2}


def test_filters() -> None:
    record = group(failure(kind="send", queue="mail"))
    assert matches(record, ErrorFilter(since=NOW, kind="send", queue="mail"))
    assert not matches(record, ErrorFilter(since=NOW + 1))
    assert not matches(record, ErrorFilter(kind="other"))
    assert not matches(record, ErrorFilter(queue="other"))
    assert not matches(record, ErrorFilter(states=(GroupState.RESOLVED,)))
    assert matches(record, ErrorFilter(states=(GroupState.OPEN, GroupState.RETURNED)))
