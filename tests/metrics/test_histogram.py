"""Histograms: fixed bounds, exact merging, percentiles within 7 %."""

import re
from importlib import resources

from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.core.counters import Minute, group_minutes, sum_totals
from forge_jobs.core.histogram import (
    BOUNDS,
    EMPTY,
    Histogram,
    bucket_of,
    histogram,
    merged,
    middle_s,
)
from forge_jobs.ops.prometheus import BUCKET_BOUNDS_S

spans = st.lists(st.floats(0, 2e6, allow_nan=False), max_size=60)


def test_the_bounds_rise_and_a_bucket_fits_into_a_byte() -> None:
    assert list(BOUNDS) == sorted(set(BOUNDS))
    assert len(BOUNDS) == 204
    assert (BOUNDS[0], BOUNDS[3], BOUNDS[-1]) == (0.00001, 0.0001, 1_000_000.0)


def test_postgres_has_the_same_bounds() -> None:
    folder = resources.files("forge_jobs.backends.postgres.functions")
    text = (folder / "primitives_v1.sql").read_text()
    found = re.search(r"width_bucket\(p_s, '\{(.*?)\}'", text, re.DOTALL)
    assert found is not None
    assert tuple(map(float, found[1].split(","))) == BOUNDS


def test_prometheus_bounds_are_ours() -> None:
    assert set(BUCKET_BOUNDS_S) <= set(BOUNDS)


@given(st.lists(spans, max_size=6))
def test_merging_parts_is_the_same_as_counting_all_at_once(parts: list[list[float]]) -> None:
    whole = merged(map(histogram, parts))
    everything = histogram([span for part in parts for span in part])
    assert whole.buckets == everything.buckets
    assert merged(map(histogram, reversed(parts))).buckets == whole.buckets
    assert whole.count == sum(map(len, parts))


@given(spans)
def test_every_sample_is_in_its_bucket(samples: list[float]) -> None:
    counted: dict[int, int] = {}
    for sample in samples:
        counted[bucket_of(sample)] = counted.get(bucket_of(sample), 0) + 1
    assert histogram(samples).buckets == counted


@given(
    st.lists(st.floats(0.0001, 999_999.0), min_size=1, max_size=80),
    st.sampled_from([0.5, 0.95, 0.99, 1.0]),
)
def test_percentiles_are_within_seven_percent(samples: list[float], share: float) -> None:
    rank = max(1, -(-int(share * 1000) * len(samples) // 1000))
    exact = sorted(samples)[rank - 1]
    quantile = histogram(samples).quantile(share)
    assert quantile is not None
    assert abs(quantile - exact) <= 0.07 * exact


def test_the_ends_of_the_scale() -> None:
    assert EMPTY.quantile(0.5) is EMPTY.mean_s is EMPTY.max_s is None
    assert bucket_of(0.0) == 0
    assert bucket_of(0.0001) == bucket_of(0.000_111) == 4
    assert bucket_of(1e12) == len(BOUNDS)
    assert histogram([1e12]).quantile(1.0) == BOUNDS[-1]
    assert middle_s(0) == 0.000_005
    assert histogram([0.001, 0.0011, 5.0]).up_to(0.0025) == 2
    assert Histogram(6.0, {1: 2, 2: 1}).mean_s == 2.0


def test_minutes_of_one_name_become_one() -> None:
    one = Minute(at=60, queue="q", kind="k", done=1, ran=histogram([1.0]))
    other = Minute(at=60, queue="q", kind="k", dead=2, ran=histogram([3.0]))
    third = Minute(at=120, queue="q", kind="k", done=4)
    assert group_minutes([third, one, other]) == [
        Minute(at=60, queue="q", kind="k", done=1, dead=2, ran=histogram([1.0, 3.0])),
        third,
    ]
    [ever] = sum_totals([one, other, third])
    assert (ever.at, ever.done, ever.dead, ever.ran.count) == (0, 5, 2, 2)
