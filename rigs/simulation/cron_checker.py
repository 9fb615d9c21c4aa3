"""What holds in every world of cron: each tick once, none early, none lost but by its policy."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import assert_never

from forge_jobs.core import cron
from forge_jobs.core.instant import SECOND, Instant, to_datetime
from forge_jobs.core.schedule import CronSpec, Missed
from forge_jobs.core.schedule_ticks import SKIP_AFTER_S
from forge_jobs.store.schedules import Fire, FireOutcome
from rigs.simulation.cron_world import CronEnded
from rigs.simulation.faults import MAX_LATE_S, MAX_SLOW_S

# A fire is decided upon, and takes effect when its call arrives.
_ON_ITS_WAY = int((MAX_LATE_S + MAX_SLOW_S) * SECOND)


def check_cron(ended: CronEnded) -> list[str]:
    """Every promise that was broken, in words."""
    broken = [f"trouble: {trouble}" for trouble in ended.troubles]
    for said in ended.options.timetable:
        fires = [one.fire for one in ended.ticked if one.name == said.name]
        clock = cron.read(said.expression, said.zone)
        wanted = list(clock.ticks(ended.began_at, ended.ended_at))
        broken += [f"{said.name}: {text}" for text in _check(said, wanted, fires)]
    for one in ended.ticked:
        if one.fire.tick > one.furthest:
            broken.append(f"{one.name}: {_shown(one.fire.tick)} fired early")
    broken += _jobs_match(ended)
    return broken


def _check(said: CronSpec, wanted: Sequence[Instant], fires: Sequence[Fire]) -> Iterator[str]:
    known, last = set(wanted), 0
    for fire in fires:
        if fire.tick <= last:
            yield f"{_shown(fire.tick)} fired twice or out of order"
        if fire.tick not in known:
            yield f"{_shown(fire.tick)} is no tick of it"
        last = max(last, fire.tick)
    policy = Missed(said.missed)
    match policy:
        case Missed.ALL:
            yield from _all_fired(wanted, fires)
        case Missed.ONCE:
            yield from _latest_fired(wanted, fires)
        case Missed.SKIP:
            yield from _late_let_go(wanted, fires)
        case _:
            assert_never(policy)


def _all_fired(wanted: Sequence[Instant], fires: Sequence[Fire]) -> Iterator[str]:
    fired = {fire.tick for fire in fires if fire.outcome is FireOutcome.FIRED}
    for tick in wanted:
        if tick not in fired:
            yield f"{_shown(tick)} never fired"


def _latest_fired(wanted: Sequence[Instant], fires: Sequence[Fire]) -> Iterator[str]:
    following = dict(pairwise(wanted))
    for fire in fires:
        if following.get(fire.tick, fire.at + 1) <= fire.at - _ON_ITS_WAY:
            yield f"{_shown(fire.tick)} fired although a later tick had come"
    if wanted and (not fires or fires[-1].tick != wanted[-1]):
        yield f"{_shown(wanted[-1])} was due last and never fired"


def _late_let_go(wanted: Sequence[Instant], fires: Sequence[Fire]) -> Iterator[str]:
    following = dict(pairwise(wanted))
    done = {fire.tick for fire in fires if fire.outcome is FireOutcome.FIRED}
    grace = SKIP_AFTER_S * SECOND
    for fire in fires:
        if fire.outcome is FireOutcome.FIRED and fire.at - fire.tick > grace + _ON_ITS_WAY:
            yield f"{_shown(fire.tick)} fired {(fire.at - fire.tick) / SECOND:.0f} s late"
    schemas = iter(fires)
    place = next(schemas, None)
    for tick in wanted:
        while place is not None and place.tick < tick:
            place = next(schemas, None)
        if place is None:
            yield f"{_shown(tick)} was never looked at"
            return
        overtaken = following.get(tick, place.at + 1) <= place.at
        if tick not in done and not overtaken and place.at - tick <= grace:
            yield f"{_shown(tick)} was let go although it was not late"


def _jobs_match(ended: CronEnded) -> list[str]:
    fired = Counter(
        (f"cron:{one.name}", f"tick:{to_datetime(one.fire.tick):%Y-%m-%dT%H:%M:%SZ}")
        for one in ended.ticked
        if one.fire.outcome is FireOutcome.FIRED
    )
    stored = Counter(ended.jobs)
    return [f"{tags} has {stored[tags]} jobs" for tags in fired | stored if stored[tags] != 1]


def _shown(tick: Instant) -> str:
    return f"{to_datetime(tick):%Y-%m-%d %H:%M:%S}"
