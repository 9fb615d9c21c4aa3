"""The checker of cron simulations: each tick once, none early, none skipped but by its policy."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import assert_never

from forge_jobs.core import cron
from forge_jobs.core.instant import SECOND, Instant, to_datetime
from forge_jobs.core.schedule import CronSpec, Missed
from forge_jobs.core.schedule_ticks import SKIP_AFTER_S
from forge_jobs.store.schedules import Fire, FireOutcome
from rigs.simulation.cron_world import CronResult
from rigs.simulation.faults import MAX_LATE_S, MAX_SLOW_S

# A tick is chosen by a node and takes effect when its call reaches the store.
_MAX_TRAVEL_US = int((MAX_LATE_S + MAX_SLOW_S) * SECOND)


def check_cron(ended: CronResult) -> list[str]:
    """Every broken invariant, as text."""
    broken = [f"error: {error}" for error in ended.errors]
    for spec in ended.options.schedules:
        fires = [one.fire for one in ended.fired if one.name == spec.name]
        clock = cron.read(spec.expression, spec.zone)
        wanted = list(clock.ticks(ended.began_at, ended.ended_at))
        broken += [f"{spec.name}: {text}" for text in _check(spec, wanted, fires)]
    for one in ended.fired:
        if one.fire.tick > one.furthest:
            broken.append(f"{one.name}: {_format_tick(one.fire.tick)} fired early")
    broken += _jobs_match(ended)
    return broken


def _check(spec: CronSpec, wanted: Sequence[Instant], fires: Sequence[Fire]) -> Iterator[str]:
    known, last = set(wanted), 0
    for fire in fires:
        if fire.tick <= last:
            yield f"{_format_tick(fire.tick)} fired twice or out of order"
        if fire.tick not in known:
            yield f"{_format_tick(fire.tick)} is not a tick of this schedule"
        last = max(last, fire.tick)
    policy = Missed(spec.missed)
    match policy:
        case Missed.ALL:
            yield from _all_fired(wanted, fires)
        case Missed.ONCE:
            yield from _latest_fired(wanted, fires)
        case Missed.SKIP:
            yield from _late_skipped(wanted, fires)
        case _:
            assert_never(policy)


def _all_fired(wanted: Sequence[Instant], fires: Sequence[Fire]) -> Iterator[str]:
    fired = {fire.tick for fire in fires if fire.outcome is FireOutcome.FIRED}
    for tick in wanted:
        if tick not in fired:
            yield f"{_format_tick(tick)} never fired"


def _latest_fired(wanted: Sequence[Instant], fires: Sequence[Fire]) -> Iterator[str]:
    following = dict(pairwise(wanted))
    for fire in fires:
        if following.get(fire.tick, fire.at + 1) <= fire.at - _MAX_TRAVEL_US:
            yield f"{_format_tick(fire.tick)} fired although a later tick had come"
    if wanted and (not fires or fires[-1].tick != wanted[-1]):
        yield f"{_format_tick(wanted[-1])} was due last and never fired"


def _late_skipped(wanted: Sequence[Instant], fires: Sequence[Fire]) -> Iterator[str]:
    following = dict(pairwise(wanted))
    done = {fire.tick for fire in fires if fire.outcome is FireOutcome.FIRED}
    grace = SKIP_AFTER_S * SECOND
    for fire in fires:
        if fire.outcome is FireOutcome.FIRED and fire.at - fire.tick > grace + _MAX_TRAVEL_US:
            yield f"{_format_tick(fire.tick)} fired {(fire.at - fire.tick) / SECOND:.0f} s late"
    remaining = iter(fires)
    fire = next(remaining, None)
    for tick in wanted:
        while fire is not None and fire.tick < tick:
            fire = next(remaining, None)
        if fire is None:
            yield f"{_format_tick(tick)} was never decided"
            return
        overtaken = following.get(tick, fire.at + 1) <= fire.at
        if tick not in done and not overtaken and fire.at - tick <= grace:
            yield f"{_format_tick(tick)} was skipped although it was not late"


def _jobs_match(ended: CronResult) -> list[str]:
    fired = Counter(
        (f"cron:{one.name}", f"tick:{to_datetime(one.fire.tick):%Y-%m-%dT%H:%M:%SZ}")
        for one in ended.fired
        if one.fire.outcome is FireOutcome.FIRED
    )
    stored = Counter(ended.jobs)
    return [f"{tags} has {stored[tags]} jobs" for tags in fired | stored if stored[tags] != 1]


def _format_tick(tick: Instant) -> str:
    return f"{to_datetime(tick):%Y-%m-%d %H:%M:%S}"
