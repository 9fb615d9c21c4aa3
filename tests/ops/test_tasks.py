"""Tasks and tags over a range: what each kind, queue and tag did."""

from itertools import pairwise

import pytest

from forge_jobs.core.decide import decide, done
from forge_jobs.core.errors import BadOption, NotFound
from forge_jobs.core.histogram import histogram
from forge_jobs.core.job import NewJob
from forge_jobs.core.outcome import Failed
from forge_jobs.ops import tags, tasks
from forge_jobs.ops.run_times import run_histogram
from forge_jobs.ops.tasks import empty_in_s
from tests.ops.harness import StoreHarness


async def run(
    harness: StoreHarness, kind: str, count: int, ran_s: float, *, failed: int = 0, tag: str = ""
) -> None:
    """Enqueue jobs and finish them, the first ones with a failure."""
    await harness.enqueue_jobs(
        *(NewJob(kind=kind, queue="mail", tags=(tag,) if tag else ()) for _ in range(count))
    )
    for number, job in enumerate(await harness.claim(count=count)):
        finish = (
            decide(job, Failed("x"), now=harness.clock.now(), ran_s=ran_s, waited_s=0.5)
            if number < failed
            else done(job, result=None, ran_s=ran_s, waited_s=0.5)
        )
        await harness.finish(finish)


async def test_a_row_per_kind_with_rates_times_share_and_backlog(harness: StoreHarness) -> None:
    await harness.register_worker("mail")
    await run(harness, "send", 4, 1.0, failed=1)
    await run(harness, "render", 1, 12.0)
    await harness.enqueue(3, kind="send")
    page = await tasks.tasks(harness.store, clock=harness.clock)
    render, send = page.tasks
    assert (page.total, page.next, page.complete) == (2, None, True)
    assert (render.name, render.run_share, render.backlog) == ("render", 0.75, 0)
    assert (send.name, send.enqueued, send.done, send.failed) == ("send", 7, 3, 1)
    assert (send.failure_rate, send.run_share, send.backlog) == (0.25, 0.25, 3)
    assert send.queues == ("mail",)
    assert send.ran.p95_s == pytest.approx(1.0, rel=0.07)
    assert send.waited.p50_s == pytest.approx(0.5, rel=0.07)
    assert sum(point.succeeded for point in send.trend) == 3
    assert sum(point.failed for point in send.trend) == 1


async def test_the_same_by_queue(harness: StoreHarness) -> None:
    await harness.register_worker("mail")
    await run(harness, "send", 2, 1.0)
    await run(harness, "render", 1, 1.0)
    await harness.enqueue(1, queue="video")
    page = await tasks.tasks(harness.store, by="queue", clock=harness.clock)
    assert [(one.name, one.done, one.backlog) for one in page.tasks] == [
        ("mail", 3, 0),
        ("video", 0, 1),
    ]


@pytest.mark.parametrize("sort", list(tasks.Sort))
async def test_pages_hold_every_kind_once_in_any_order(harness: StoreHarness, sort: str) -> None:
    await harness.register_worker("mail")
    for number in range(7):
        await run(harness, f"kind{number}", 1 + number % 3, 0.1 * (number % 4))
    seen: list[str] = []
    after = None
    while True:
        page = await tasks.tasks(
            harness.store, sort=sort, limit=3, after=after, clock=harness.clock
        )
        assert len(page.tasks) <= 3
        seen += [one.name for one in page.tasks]
        after = page.next
        if after is None:
            break
    assert sorted(seen) == [f"kind{number}" for number in range(7)]
    if sort == "name":
        assert seen == sorted(seen)


async def test_bad_input_names_the_field(harness: StoreHarness) -> None:
    with pytest.raises(BadOption, match="range='2y' is not one of 1h"):
        await tasks.tasks(harness.store, range_name="2y")
    with pytest.raises(BadOption, match="sort='luck'"):
        await tasks.tasks(harness.store, sort="luck")
    with pytest.raises(BadOption, match="after='x' is not a cursor"):
        await tags.tags(harness.store, after="x")
    with pytest.raises(NotFound, match="kind 'nobody'"):
        await tasks.task(harness.store, "nobody")
    with pytest.raises(NotFound, match="tag 'nobody'"):
        await tags.tag(harness.store, "nobody")


async def test_one_kind_has_a_histogram_and_a_heat_map_that_agree(harness: StoreHarness) -> None:
    await harness.register_worker("mail")
    await run(harness, "send", 3, 0.02)
    harness.clock.advance(120)
    await harness.register_worker("mail", host_id="01HOSTB")
    await run(harness, "send", 1, 3.0)
    detail = await tasks.task(harness.store, "send", clock=harness.clock)
    assert sum(bucket.runs for bucket in detail.histogram) == 4
    heat = detail.heat_map
    assert sum(sum(column.runs) for column in heat.columns) == 4
    assert all(len(column.runs) == len(heat.rows) for column in heat.columns)
    assert (heat.rows[0].runs, heat.rows[-1].runs) == (3, 1)
    busy = [column for column in heat.columns if any(column.runs)]
    assert [column.ran.count for column in busy] == [3, 1]


def test_bars_cover_every_run_time() -> None:
    spans = [0.0, 0.000_05, 0.000_1, 0.3, 20.0, 5e6]
    bars = run_histogram(histogram(spans))
    assert sum(bar.runs for bar in bars) == len(spans)
    assert (bars[0].from_s, bars[-1].to_s) == (0.0, None)
    for bar, following in pairwise(bars):
        assert bar.to_s == following.from_s
    [bar] = [bar for bar in bars if bar.from_s <= 0.3 < (bar.to_s or 0.0)]
    assert bar.runs == 1


def test_a_backlog_is_done_only_if_more_goes_than_comes() -> None:
    assert empty_in_s(0, 5, 0, 60.0) == 0.0
    assert empty_in_s(100, 10, 20, 60.0) == 600.0
    assert empty_in_s(100, 20, 20, 60.0) is None


async def test_the_noisy_tag_is_first_and_leads_to_its_task(harness: StoreHarness) -> None:
    await harness.register_worker("mail")
    await run(harness, "send", 1, 1.0, tag="tenant:quiet")
    await run(harness, "report", 4, 4.0, failed=2, tag="tenant:noisy\n/é")
    page = await tags.tags(harness.store, clock=harness.clock)
    noisy, quiet = page.tags
    assert (noisy.tag, noisy.run_share, noisy.numbers.runs) == ("tenant:noisy\n/é", 0.9412, 4)
    assert noisy.numbers.failure_rate == 0.5
    assert (quiet.tag, quiet.numbers.mean_run_s, quiet.numbers.mean_wait_s) == (
        "tenant:quiet", 1.0, 0.5,
    )  # fmt: skip
    assert page.other is None
    detail = await tags.tag(harness.store, noisy.tag, range_name="7d", clock=harness.clock)
    [task] = detail.tasks
    assert (task.queue, task.kind, task.run_share) == ("mail", "report", 1.0)
    assert sum(point.failed for point in detail.tag.trend) == 2
    first = await tags.tags(harness.store, limit=1, sort="name", clock=harness.clock)
    assert [one.tag for one in first.tags] == [noisy.tag]
    [second] = (
        await tags.tags(harness.store, limit=1, sort="name", after=first.next, clock=harness.clock)
    ).tags
    assert second.tag == quiet.tag
