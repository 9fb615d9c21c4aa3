"""Looks at the store for alert rules: opens and closes episodes, and stores their messages."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

from forge_jobs.core.alert_rule import AlertRule, Condition
from forge_jobs.core.alert_values import Observed, QueueFacts, values_of, window_start
from forge_jobs.core.alerts import AlertState, advance, announcements
from forge_jobs.core.instant import SECOND, Instant
from forge_jobs.core.status import JobStatus
from forge_jobs.kit import redact
from forge_jobs.kit.log import log_facts
from forge_jobs.kit.service import Next, RunsOn
from forge_jobs.store.alerts import AlertRules, StateChange, delivery_queue
from forge_jobs.store.processes import ProcessRecord
from forge_jobs.store.queues import QueueConfig
from forge_jobs.store.schedules import FireOutcome, Schedule
from forge_jobs.store.store import Store

_LOG = logging.getLogger("forge_jobs.alerts")
_WAITING: Final = frozenset({JobStatus.PENDING, JobStatus.HELD})
# A change of leadership takes shorter.
_OVERDUE: Final = 60 * SECOND
_MAX_HISTORIES: Final = 200
_ERRORS_EVERY: Final = 30 * SECOND
_ERRORS_SINCE: Final = 24 * 3_600 * SECOND
_MAX_SUBJECT: Final = 160


class Alerts:
    """The state of a rule changes by atomic updates and its messages have a dedupe key, so that an
    episode is announced once however many processes look, and whoever dies meanwhile."""

    name = "alerts"
    runs_on = RunsOn.LEADER

    def __init__(self, store: Store, *, interval_s: float = 5.0) -> None:
        self._store = store
        self._rules = AlertRules(store)
        self._interval_s = interval_s
        # What the last entry of each history says, and at which ticks it was read.
        self._missed: dict[str, tuple[tuple[Instant | None, Instant | None], int]] = {}

        self._returned: tuple[Instant, dict[str, int]] = (0, {})

    async def tick(self) -> Next:
        """Look once at everything that rules ask for."""
        rules = await self._rules.all()
        states = await self._rules.states()
        for name in states.keys() - {rule.name for rule in rules}:
            await self._rules.delete_state(name)
        if rules:
            await self._look(rules, states)
        return Next.after(self._interval_s)

    async def _look(self, rules: Sequence[AlertRule], states: dict[str, AlertState]) -> None:
        configs, processes = await self._store.queues.all(), await self._store.processes.all()
        observed = await self._observe(rules, configs, processes)
        changes: dict[str, StateChange] = {}
        for rule in rules:
            change = _advancing(rule, observed)
            before = states.get(rule.name, AlertState())
            if change(before, observed.now) != before:
                changes[rule.name] = change
        if changes:
            changed = await self._rules.change_states(changes)
            for name, state in changed.items():
                _log_changes(states.get(name, AlertState()), state)
            states |= changed
        queue = delivery_queue(configs, processes)
        for rule in rules:
            state = states.get(rule.name)
            if state is not None:
                for due in announcements(rule, state, observed.now):
                    await self._rules.announce(rule, due, queue=queue)

    async def _observe(
        self,
        rules: Sequence[AlertRule],
        configs: Sequence[QueueConfig],
        processes: Sequence[ProcessRecord],
    ) -> Observed:
        metrics = self._store.metrics
        now = await self._store.now()
        counts, oldest = await metrics.counts(), await metrics.oldest_due()
        waiting: dict[str, int] = {}
        for count in counts:
            if count.status in _WAITING:
                waiting[count.queue] = waiting.get(count.queue, 0) + count.jobs
        serving = Counter(queue for process in processes for queue in process.queues)
        pulled = {config.name for config in configs if config.slots == 0}
        since = window_start(rules, now)
        conditions = {rule.condition for rule in rules}
        return Observed(
            now=now,
            queues={
                name: QueueFacts(
                    waiting=waiting.get(name, 0),
                    oldest_due=oldest.get(name),
                    workers=serving[name],
                    for_workers=name not in pulled,
                )
                for name in sorted({*waiting, *oldest, *serving, *(one.name for one in configs)})
            },
            minutes=() if since is None else await metrics.minutes(since=since, until=now + 1),
            missed=await self._missed_ticks(now) if Condition.MISSED_SCHEDULE in conditions else {},
            returned=await self._returned_errors(now)
            if Condition.ERROR_RETURNED in conditions
            else {},
        )

    async def _returned_errors(self, now: Instant) -> dict[str, int]:
        """Failures since their return of errors that were resolved, by id and title. Read every
        half minute: groups are large. One that was not seen for a day counts as gone."""
        read_at, returned = self._returned
        if now - read_at >= _ERRORS_EVERY:
            groups = await self._store.error_groups.seen(since=now - _ERRORS_SINCE)
            returned = {
                f"{one.id}: {redact.prose(one.title)}"[:_MAX_SUBJECT]: max(
                    1, one.count_since(one.returned_at)
                )
                for one in groups
                if one.returned_at is not None
            }
            self._returned = now, returned
        return returned

    async def _missed_ticks(self, now: Instant) -> dict[str, int]:
        """Ticks that did not fire, by schedule: dropped with the last one, or overdue now."""
        schedules = await self._store.schedules.all()
        self._missed = {
            one.name: self._missed[one.name] for one in schedules if one.name in self._missed
        }
        histories = 0
        missed: dict[str, int] = {}
        for schedule in schedules:
            known, ticks = self._missed.get(schedule.name), (schedule.last_at, schedule.next_at)
            if (known is None or known[0] != ticks) and histories < _MAX_HISTORIES:
                histories += 1
                known = ticks, await self._dropped(schedule)
                self._missed[schedule.name] = known
            dropped = 0 if known is None else known[1]
            missed[schedule.name] = dropped + _is_overdue(schedule, now)
        return missed

    async def _dropped(self, schedule: Schedule) -> int:
        fires = await self._store.schedules.history(schedule.name, limit=1)
        if not fires:
            return 0
        return fires[0].missed + (fires[0].outcome is FireOutcome.MISSED)


def _advancing(rule: AlertRule, observed: Observed) -> StateChange:
    values = values_of(rule, observed)

    def change(state: AlertState, now: Instant) -> AlertState:
        return advance(rule, state, values, now)

    return change


def _is_overdue(schedule: Schedule, now: Instant) -> bool:
    if schedule.error is not None:
        return True
    return schedule.enabled and schedule.next_at is not None and now - schedule.next_at > _OVERDUE


def _log_changes(before: AlertState, after: AlertState) -> None:
    for subject, episode in after.open.items():
        if subject not in before.open:
            log_facts(
                _LOG, logging.WARNING, "alert opened",
                rule=episode.rule, subject=subject, value=round(episode.value, 4),
                episode=episode.id,
            )  # fmt: skip
    for subject, episode in before.open.items():
        if subject not in after.open:
            log_facts(
                _LOG, logging.INFO, "alert closed",
                rule=episode.rule, subject=subject, episode=episode.id,
            )  # fmt: skip
