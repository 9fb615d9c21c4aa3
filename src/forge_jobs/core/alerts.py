"""When an episode of an alert opens, stays and closes, and what of it is to be announced.

A rule watches *subjects*: queues, schedules, errors. Each look at the store gives a value for every
subject, and ``advance`` turns the state of a rule and these values into its next state. It is pure:
the store may call it again, and processes that look at the same time come to the same episodes.
"""

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .alert_rule import AlertRule, Condition
from .instant import SECOND, Instant
from .quiet_times import is_quiet

# What is kept of one rule lies in one setting: at most 64 KiB.
MAX_OPEN: Final = 50
MAX_CLOSED: Final = 50


class Phase(StrEnum):
    """What a message is about: an episode opened or closed, or somebody tests the receiver."""

    OPENED = "opened"
    CLOSED = "closed"
    TEST = "test"


class Episode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A time in which a rule's condition held for one subject.

    ``value`` is the one that opened it. ``silent``: it opened in a quiet time (or without a
    receiver), and is announced only if it is still open afterwards. ``opened_job`` and
    ``closed_job`` are the jobs that announce it.
    """

    id: str
    rule: str
    condition: Condition
    subject: str
    value: float
    above: float
    opened_at: Instant
    closed_at: Instant | None = None
    silent: bool = False
    opened_job: str | None = None
    closed_job: str | None = None


class AlertState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored about a rule: since when subjects are above, since when those with an open
    episode are low again, the open episodes by subject, and the closed ones, newest first."""

    high: Mapping[str, Instant] = {}
    low: Mapping[str, Instant] = {}
    open: Mapping[str, Episode] = {}
    closed: tuple[Episode, ...] = ()


class Announcement(Struct, frozen=True):
    """A message that is to be sent, once."""

    episode: Episode
    phase: Phase


def advance(
    rule: AlertRule, state: AlertState, values: Mapping[str, float], now: Instant
) -> AlertState:
    """The next state of a rule. A subject without a value counts as low: it is gone."""
    high, low = dict(state.high), dict(state.low)
    opened, closed = dict(state.open), list(state.closed)
    for subject in sorted({*values, *high, *opened}):
        value = values.get(subject, 0.0) if rule.enabled else 0.0
        known = subject in values and rule.enabled
        if subject in opened:
            if known and value > rule.below:
                low.pop(subject, None)
                continue
            since = low.setdefault(subject, now)
            if not known or _has_lasted(since, now, rule.clear_s):
                closed.insert(0, replace(opened.pop(subject), closed_at=now))
                low.pop(subject)
                high.pop(subject, None)
        elif not known or value <= rule.above:
            high.pop(subject, None)
        else:
            since = high.setdefault(subject, now)
            if _has_lasted(since, now, rule.for_s) and len(opened) < MAX_OPEN:
                opened[subject] = _new_episode(rule, subject, value, now)
                high.pop(subject)
    return AlertState(
        high=dict(sorted(high.items())[: 4 * MAX_OPEN]),
        low=low,
        open=opened,
        closed=_kept(closed),
    )


def announcements(rule: AlertRule, state: AlertState, now: Instant) -> list[Announcement]:
    """The messages that are due, oldest first; none in a quiet time or without a receiver."""
    if rule.url is None or is_quiet(rule.quiet, rule.zone, now):
        return []
    due: list[Announcement] = []
    for episode in sorted([*state.open.values(), *state.closed], key=lambda one: one.opened_at):
        if is_settled(episode):
            continue
        if episode.opened_job is None:
            due.append(Announcement(episode, Phase.OPENED))
        if episode.closed_at is not None and episode.closed_job is None:
            due.append(Announcement(episode, Phase.CLOSED))
    return due


def announced(state: AlertState, episode_id: str, phase: Phase, job_id: str) -> AlertState:
    """The state with the job that announces an episode."""
    field = "opened_job" if phase is Phase.OPENED else "closed_job"

    def marked(episode: Episode) -> Episode:
        return replace(episode, **{field: job_id}) if episode.id == episode_id else episode

    return replace(
        state,
        open={subject: marked(one) for subject, one in state.open.items()},
        closed=_kept([marked(one) for one in state.closed]),
    )


def is_settled(episode: Episode) -> bool:
    """Whether nothing of a closed episode is left to announce."""
    if episode.closed_at is None:
        return False
    return episode.closed_job is not None or (episode.silent and episode.opened_job is None)


def message(episode: Episode, phase: Phase, *, link: str | None = None) -> dict[str, object]:
    """The body of a message; ``text`` is for people and chat services."""
    condition, rule = episode.condition, episode.rule
    value, above = shown_value(condition, episode.value), shown_value(condition, episode.above)
    what = f"{condition.replace('_', ' ')} of {episode.subject}"
    texts = {
        Phase.OPENED: f"Alert {rule}: {what} is {value} (above {above})",
        Phase.CLOSED: f"Resolved {rule}: {what} is back to normal",
        Phase.TEST: f"Test of alert {rule}: this receiver gets its messages",
    }
    data: dict[str, object] = {
        "episode": episode.id,
        "rule": rule,
        "condition": str(condition),
        "subject": episode.subject,
        "value": episode.value,
        "above": episode.above,
        "opened_at": episode.opened_at // SECOND,
        "closed_at": None if episode.closed_at is None else episode.closed_at // SECOND,
    }
    body: dict[str, object] = {"type": f"alert.{phase}", "text": texts[phase], "data": data}
    return body if link is None else {**body, "link": link}


def shown_value(condition: Condition, value: float) -> str:
    """A value with its unit."""
    match condition:
        case Condition.DEAD_RATE:
            return f"{value:.1%}"
        case Condition.LONGEST_WAIT:
            return f"{value:,.0f} s"
        case _:
            return f"{value:,.0f}"


def decode_state(data: bytes | None) -> AlertState:
    """A stored state; an empty one where there is none, or none that can be read."""
    try:
        return AlertState() if data is None else msgspec.json.decode(data, type=AlertState)
    except msgspec.MsgspecError:
        # Written by another version of this library: its open episodes are found again.
        return AlertState()


def _new_episode(rule: AlertRule, subject: str, value: float, now: Instant) -> Episode:
    # Made from what opened it, so that a repeated transaction makes the same id.
    digest = hashlib.sha256(f"{rule.name}\0{subject}\0{now}".encode()).hexdigest()
    return Episode(
        id=f"{now:014x}{digest[:10]}",
        rule=rule.name,
        condition=rule.condition,
        subject=subject,
        value=value,
        above=rule.above,
        opened_at=now,
        silent=rule.url is None or is_quiet(rule.quiet, rule.zone, now),
    )


def _kept(closed: list[Episode]) -> tuple[Episode, ...]:
    """The newest closed episodes, and all that are not announced yet, up to twice as many."""
    waiting = [one for one in closed[MAX_CLOSED:] if not is_settled(one)]
    return (*closed[:MAX_CLOSED], *waiting[:MAX_CLOSED])


def _has_lasted(since: Instant, now: Instant, span_s: float) -> bool:
    return now - since >= round(span_s * SECOND)
