"""Counts by tag: sums, and which values have a place of their own."""

from forge_jobs.core.instant import DAY, HOUR, MINUTE
from forge_jobs.core.tag_counts import (
    MAX_TASKS,
    OTHER,
    TagDay,
    TagPart,
    TagSums,
    TaskSums,
    days_of,
    heaviest_tasks,
    kept_weights,
    with_incoming,
)

NOON = 20_000 * DAY + 12 * HOUR


def part(tag: str, ran_s: float, at: int = NOON, kind: str = "mail") -> TagPart:
    return TagPart(at, tag, "q", kind, TagSums(runs=1, done=1, ran_s=ran_s))


def totals(days: list[TagDay]) -> dict[str, float]:
    return {day.tag: day.total.ran_s for day in days}


def test_parts_add_up_by_day_hour_and_task() -> None:
    parts = [part("a", 1.0), part("a", 2.0, NOON + MINUTE, "pdf"), part("a", 4.0, NOON + HOUR)]
    [day] = with_incoming([], [*parts, part("a", 8.0, NOON + DAY)])[:1]
    assert day.total == TagSums(runs=3, done=3, ran_s=7.0)
    assert {hour: sums.ran_s for hour, sums in day.hours.items()} == {12: 3.0, 13: 4.0}
    assert {task.kind: task.sums.ran_s for task in day.tasks} == {"mail": 5.0, "pdf": 2.0}


def test_a_heavy_value_that_comes_late_takes_the_place_of_the_lightest() -> None:
    stored = {f"t{number}": float(number + 1) for number in range(10)}
    [noisy] = days_of([part("noisy", 100.0)])[NOON - NOON % DAY]
    kept = kept_weights(stored, [noisy], limit=10)
    assert "noisy" in kept
    assert "t0" not in kept
    assert len(kept) == 10


def test_whoever_has_more_than_its_share_is_kept_among_any_number_of_light_ones() -> None:
    """A steady value with 1 of every 5 runs, among 2,000 that come once; room for ten."""
    weights: dict[str, float] = {}
    for number in range(2_000):
        parts = [part(f"once{number}", 1.0)]
        if number % 5 == 0:
            parts.append(part("steady", 1.0))
        [incoming] = days_of(parts).values()
        weights = kept_weights(weights, incoming, limit=10)
        assert len(weights) <= 10
    assert "steady" in weights


def test_sums_stay_exact_whoever_has_a_place() -> None:
    rows: list[TagDay] = []
    for number in range(1_200):
        rows = with_incoming(rows, [part(f"t{number}", float(number))])
    assert sum(totals(rows).values()) == sum(range(1_200))
    assert len(rows) == 501
    assert totals(rows)[OTHER] > 0


def test_a_tag_keeps_its_heaviest_tasks_and_one_for_the_rest() -> None:
    tasks = [TaskSums("q", f"k{number}", TagSums(runs=1, ran_s=number)) for number in range(30)]
    kept = heaviest_tasks(tasks)
    assert len(kept) == MAX_TASKS + 1
    assert kept[0].kind == "k29"
    assert (kept[-1].kind, kept[-1].sums.ran_s) == ("", sum(range(10)))
