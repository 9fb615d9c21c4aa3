"""Alert rules and their states, over the settings contract.

A rule is one setting, with its secret in it; the state of a rule (open and past episodes) is
another one. Every change of a state is one atomic update with a pure function, so that processes
that look at the same time do not open an episode twice.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from forge_jobs.config import DEFAULT_QUEUE
from forge_jobs.core.alert_rule import MAX_RULES, AlertRule
from forge_jobs.core.alert_values import ALERT_KIND, ALERT_QUEUE
from forge_jobs.core.alerts import AlertState, Announcement, Phase, announced, decode_state
from forge_jobs.core.errors import Conflict, NotFound
from forge_jobs.core.instant import Instant
from forge_jobs.core.job import LaneOrder, NewJob

from .processes import ProcessRecord
from .queues import QueueConfig
from .settings import Setting
from .store import Store

RULES: Final = "alert_rule"
STATES: Final = "alert_state"
_PRIORITY: Final = -1_000_000
_MAX_ATTEMPTS: Final = 15
_KEY_KEPT_S: Final = 30 * 86_400.0
_TEST_KEPT_S: Final = 3_600.0

RuleChange: TypeAlias = Callable[[AlertRule | None], AlertRule | None]
StateChange: TypeAlias = Callable[[AlertState, Instant], AlertState]


class AlertRules:
    """The alert rules of one store, and the states of their episodes."""

    def __init__(self, store: Store) -> None:
        self._settings = store.settings
        self._jobs = store.jobs

    async def all(self) -> tuple[AlertRule, ...]:
        """All rules, by name."""
        return tuple(_rule(setting) for setting in await self._settings.all(RULES))

    async def get(self, name: str) -> AlertRule:
        """One rule; NotFound for an unknown name."""
        setting = await self._settings.get(RULES, name)
        if setting is None:
            raise NotFound(f"there is no alert rule {name!r}: see `forge alerts list`")
        return _rule(setting)

    async def put(self, name: str, change: RuleChange) -> AlertRule:
        """Store what ``change`` makes of a rule (None if there is none yet); None leaves it as it
        is. A rule that watches something else begins without episodes. Conflict beyond 100 rules.
        """
        before = await self._settings.get(RULES, name)
        if before is None and len(await self._settings.all(RULES)) >= MAX_RULES:
            raise Conflict(f"there are {MAX_RULES} alert rules already: remove one first")

        def changed(current: Setting | None, now: Instant) -> bytes | None:
            rule = change(None if current is None else _rule(current))
            return None if rule is None else msgspec.json.encode(rule)

        setting = (await self._settings.update(RULES, {name: changed}))[name]
        if setting is None:
            raise NotFound(f"there is no alert rule {name!r}: see `forge alerts list`")
        rule = _rule(setting)
        if before is not None and _watched(_rule(before)) != _watched(rule):
            await self._settings.delete(STATES, name)
        return rule

    async def delete(self, name: str) -> bool:
        """Delete a rule with its episodes; whether there was one."""
        deleted = await self._settings.delete(RULES, name)
        await self._settings.delete(STATES, name)
        return deleted

    async def states(self) -> dict[str, AlertState]:
        """The states of the rules that have one, by rule."""
        return {one.name: decode_state(one.value) for one in await self._settings.all(STATES)}

    async def change_states(self, changes: Mapping[str, StateChange]) -> dict[str, AlertState]:
        """Change states in one transaction; those afterwards, by rule. Nothing is written where
        nothing changes."""

        def wrapped(change: StateChange) -> Callable[[Setting | None, Instant], bytes | None]:
            def changed(current: Setting | None, now: Instant) -> bytes | None:
                state = decode_state(None if current is None else current.value)
                following = change(state, now)
                return None if following == state else msgspec.json.encode(following)

            return changed

        settings = await self._settings.update(
            STATES, {name: wrapped(change) for name, change in changes.items()}
        )
        return {
            name: decode_state(None if setting is None else setting.value)
            for name, setting in settings.items()
        }

    async def delete_state(self, name: str) -> None:
        """Delete the state of a rule that is gone."""
        await self._settings.delete(STATES, name)

    async def announce(self, rule: AlertRule, due: Announcement, *, queue: str) -> str:
        """Store the job that announces an episode, and note its id; the id. However often it is
        called for one episode and phase, and by whomever: it is one job."""
        job_id = (await self._jobs.enqueue([delivery_job(due, queue=queue)]))[0].id

        def noted(state: AlertState, now: Instant) -> AlertState:
            return announced(state, due.episode.id, due.phase, job_id)

        if due.phase is not Phase.TEST:
            await self.change_states({rule.name: noted})
        return job_id


def delivery_job(due: Announcement, *, queue: str) -> NewJob:
    """The job that delivers a message. Its payload names the episode; address and secret stay in
    the rule. The messages of one episode go out one after the other."""
    episode = due.episode
    is_test = due.phase is Phase.TEST
    return NewJob(
        kind=ALERT_KIND,
        queue=queue,
        payload=msgspec.json.encode({"phase": due.phase, "episode": _without_jobs(due)}),
        priority=_PRIORITY,
        max_attempts=3 if is_test else _MAX_ATTEMPTS,
        dedupe_key=f"{ALERT_KIND}:{episode.id}:{due.phase}",
        dedupe_for_s=_TEST_KEPT_S if is_test else _KEY_KEPT_S,
        tags=(f"alert:{episode.rule}",),
        lane=f"{ALERT_KIND}:{episode.id}",
        order=LaneOrder.STRICT,
    )


def delivery_queue(configs: Sequence[QueueConfig], processes: Sequence[ProcessRecord]) -> str:
    """The queue for messages: ``alerts`` if a worker serves it, else one that works now: not
    paused, with slots and the most workers."""
    workers: dict[str, int] = {}
    for process in processes:
        for queue in process.queues:
            workers[queue] = workers.get(queue, 0) + (not process.quiet)
    if workers.get(ALERT_QUEUE):
        return ALERT_QUEUE
    closed = {one.name for one in configs if one.paused or one.slots == 0}
    usable = [queue for queue, count in workers.items() if count and queue not in closed]
    best = sorted(usable, key=lambda queue: (queue != DEFAULT_QUEUE, -workers[queue], queue))
    return best[0] if best else ALERT_QUEUE


def _without_jobs(due: Announcement) -> object:
    episode = replace(due.episode, opened_job=None, closed_job=None)
    # What opened is told as it was then, whenever its job is made.
    return replace(episode, closed_at=None) if due.phase is Phase.OPENED else episode


def _rule(setting: Setting) -> AlertRule:
    return msgspec.json.decode(setting.value, type=AlertRule)


def _watched(rule: AlertRule) -> tuple[object, ...]:
    return rule.condition, rule.queue, rule.schedule
