"""From what a look at the store found to the values of alert rules, by subject."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from .alert_rule import AlertRule, Condition
from .counters import Minute
from .instant import MINUTE, SECOND, Instant

ALERT_KIND: Final = "forge.alert"
ALERT_QUEUE: Final = "alerts"


class QueueFacts(Struct, frozen=True, kw_only=True):
    """What rules ask of a queue. ``waiting``: jobs that are due or held and do not run.
    ``for_workers``: it has slots; scripts pull from a queue without."""

    waiting: int = 0
    oldest_due: Instant | None = None
    workers: int = 0
    for_workers: bool = True


class Observed(Struct, frozen=True, kw_only=True):
    """One look at the store. ``missed``: ticks of a schedule that did not fire, by its name.
    ``returned``: failures since their return, by the id of the error group."""

    now: Instant
    queues: Mapping[str, QueueFacts] = {}
    minutes: Sequence[Minute] = ()
    missed: Mapping[str, int] = {}
    returned: Mapping[str, int] = {}


def values_of(rule: AlertRule, observed: Observed) -> dict[str, float]:
    """The value of every subject of a rule."""
    match rule.condition:
        case Condition.MISSED_SCHEDULE:
            return _chosen(rule.schedule, {name: float(n) for name, n in observed.missed.items()})
        case Condition.ERROR_RETURNED:
            return {name: float(n) for name, n in observed.returned.items()}
        case Condition.DEAD_RATE:
            return _chosen(rule.queue, _dead_rates(rule, observed))
        case _:
            values = {name: _value(rule.condition, facts, observed.now)
                      for name, facts in observed.queues.items()}  # fmt: skip
            return _chosen(rule.queue, values)


def window_start(rules: Sequence[AlertRule], now: Instant) -> Instant | None:
    """The first minute that dead rates need; None if no rule needs any."""
    windows = [rule.window_s for rule in rules if rule.condition is Condition.DEAD_RATE]
    return _first_minute(now, max(windows)) if windows else None


def _value(condition: Condition, facts: QueueFacts, now: Instant) -> float:
    match condition:
        case Condition.BACKLOG:
            return float(facts.waiting)
        case Condition.LONGEST_WAIT:
            return 0.0 if facts.oldest_due is None else max(0, now - facts.oldest_due) / SECOND
        case _:
            return float(facts.for_workers and facts.workers == 0)


def _dead_rates(rule: AlertRule, observed: Observed) -> dict[str, float]:
    since = _first_minute(observed.now, rule.window_s)
    ended, dead = dict.fromkeys(observed.queues, 0), dict.fromkeys(observed.queues, 0)
    for minute in observed.minutes:
        # A receiver that is down must not keep its own alert open.
        if minute.at >= since and minute.kind != ALERT_KIND:
            ended[minute.queue] = ended.get(minute.queue, 0) + minute.done + minute.dead
            dead[minute.queue] = dead.get(minute.queue, 0) + minute.dead
    return {
        queue: dead[queue] / count if count >= rule.min_jobs else 0.0
        for queue, count in ended.items()
    }


def _first_minute(now: Instant, window_s: float) -> Instant:
    return (now - round(window_s * SECOND)) // MINUTE * MINUTE


def _chosen(subject: str | None, values: dict[str, float]) -> dict[str, float]:
    if subject is None:
        # Messages that wait must not make messages about themselves; a rule may name the queue.
        return {name: value for name, value in values.items() if name != ALERT_QUEUE}
    return {subject: values[subject]} if subject in values else {}
