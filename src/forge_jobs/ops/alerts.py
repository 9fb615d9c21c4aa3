"""Alert rules and their episodes: read models and operator actions."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from forge_jobs.core.alert_rule import AlertRule, edited_rule, rule_name, shown_url
from forge_jobs.core.alerts import AlertState, Announcement, Episode, Phase, shown_value
from forge_jobs.core.errors import BadOption, Conflict, NotFound
from forge_jobs.core.instant import to_datetime
from forge_jobs.kit.clock import SYSTEM_CLOCK, Clock
from forge_jobs.kit.redact import prose
from forge_jobs.store.alerts import AlertRules, delivery_queue
from forge_jobs.store.store import Store

from .audit import Actor, Audit, AuditTrail, field_values
from .views import View, optional_datetime

MAX_EPISODES: Final = 1_000
# Neither the address nor the secret.
_AUDITED: Final = (
    "condition", "above", "below", "for_s", "clear_s", "queue", "schedule", "window_s", "min_jobs",
    "zone", "enabled",
)  # fmt: skip


class AlertRuleView(View, frozen=True, kw_only=True):
    """An alert rule. ``url`` is the receiver without its path; ``signed``: it has a secret.
    ``state`` is ``off``, ``ok``, ``pending`` (above, but not long enough) or ``open``; ``open``
    counts the open episodes."""

    name: str
    condition: str
    above: float
    below: float
    above_text: str
    for_s: float
    clear_s: float
    queue: str | None
    schedule: str | None
    window_s: float
    min_jobs: int
    url: str | None
    signed: bool
    quiet: tuple[str, ...]
    tz: str
    enabled: bool
    declared: bool
    edited: bool
    state: str
    open: int


class EpisodeView(View, frozen=True, kw_only=True):
    """An episode of a rule for one subject: a queue, a schedule or an error. ``opened_job`` and
    ``closed_job`` deliver its messages; ``silent``: it opened in a quiet time or without a
    receiver."""

    id: str
    rule: str
    condition: str
    subject: str
    value: float
    value_text: str
    above: float
    opened_at: datetime
    closed_at: datetime | None
    silent: bool
    opened_job: str | None
    closed_job: str | None


async def alert_rules(store: Store) -> tuple[AlertRuleView, ...]:
    """All rules, by name."""
    rules = AlertRules(store)
    states = await rules.states()
    return tuple(_rule_view(rule, states.get(rule.name)) for rule in await rules.all())


async def alert_rule(store: Store, name: str) -> AlertRuleView:
    """One rule; NotFound for an unknown name."""
    rules = AlertRules(store)
    return _rule_view(await rules.get(name), (await rules.states()).get(name))


async def episodes(
    store: Store, *, rule: str | None = None, only_open: bool = False, limit: int = 100
) -> tuple[EpisodeView, ...]:
    """Episodes: the open ones first, then the closed ones, newest first."""
    if not 1 <= limit <= MAX_EPISODES:
        raise BadOption(f"limit={limit} must lie between 1 and {MAX_EPISODES:,}")
    states = await AlertRules(store).states()
    chosen = states if rule is None else {rule: states.get(rule, AlertState())}
    found = [one for state in chosen.values() for one in state.open.values()]
    if not only_open:
        found += [one for state in chosen.values() for one in state.closed]
    found.sort(key=lambda one: (one.closed_at is not None, -one.opened_at, one.id))
    return tuple(_episode_view(one) for one in found[:limit])


class AlertActions:
    """Changes alert rules of one store; ``actor`` is the name in the audit."""

    def __init__(
        self,
        store: Store,
        *,
        actor: str | Actor,
        audit: Audit | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._rules = AlertRules(store)
        self._trail = AuditTrail(store, actor, audit, clock)

    async def add(self, rule: AlertRule) -> AlertRuleView:
        """Store a new rule; Conflict if there is one of that name."""

        def added(known: AlertRule | None) -> AlertRule:
            if known is not None:
                raise Conflict(
                    f"there is an alert rule {rule.name!r} already: change it with "
                    f"`forge alerts edit {rule.name}`"
                )
            return replace(rule, edited=True)

        stored = await self._rules.put(rule.name, added)
        after = field_values(stored, _AUDITED)
        await self._trail.record("add alert", rule.name, after=after)
        return await alert_rule(self._store, rule.name)

    async def edit(self, name: str, changes: Mapping[str, Any]) -> AlertRuleView:
        """Change fields of a rule, by the names of ``new_rule``; code does not overwrite them."""
        if not changes:
            raise BadOption("say what to change, for example above")
        return await self._change(name, "edit alert", lambda rule: edited_rule(rule, changes))

    async def enable(self, name: str, enabled: bool) -> AlertRuleView:
        """Switch a rule on or off; its open episodes close when it is off."""
        action = "enable alert" if enabled else "disable alert"
        return await self._change(
            name, action, lambda rule: replace(rule, enabled=enabled, edited=True)
        )

    async def remove(self, name: str) -> None:
        """Delete a rule with its episodes. A rule that code declares comes back with the next
        worker that starts: switch it off instead."""
        if not await self._rules.delete(rule_name(name)):
            raise NotFound(f"there is no alert rule {name!r}: see `forge alerts list`")
        await self._trail.record("remove alert", name)

    async def test(self, name: str) -> str:
        """Store a job that sends a test message to the receiver of a rule; its id."""
        rule = await self._rules.get(name)
        if rule.url is None:
            raise BadOption(f"alert {name!r} has no receiver: give it one with --webhook URL")
        now = await self._store.now()
        episode = Episode(
            id=f"test{now:014x}", rule=name, condition=rule.condition, subject="test",
            value=rule.above, above=rule.above, opened_at=now,
        )  # fmt: skip
        configs, processes = await self._store.queues.all(), await self._store.processes.all()
        queue = delivery_queue(configs, processes)
        job_id = await self._rules.announce(rule, Announcement(episode, Phase.TEST), queue=queue)
        await self._trail.record("test alert", name, {"job": job_id})
        return job_id

    async def _change(
        self, name: str, action: str, change: Callable[[AlertRule], AlertRule]
    ) -> AlertRuleView:
        before = await self._rules.get(name)
        after = await self._rules.put(name, lambda known: None if known is None else change(known))
        await self._trail.record(
            action, name, before=field_values(before, _AUDITED), after=field_values(after, _AUDITED)
        )
        return await alert_rule(self._store, name)


def _rule_view(rule: AlertRule, state: AlertState | None) -> AlertRuleView:
    known = state or AlertState()
    word = "open" if known.open else "pending" if known.high else "ok"
    return AlertRuleView(
        name=rule.name,
        condition=rule.condition,
        above=rule.above,
        below=rule.below,
        above_text=shown_value(rule.condition, rule.above),
        for_s=rule.for_s,
        clear_s=rule.clear_s,
        queue=rule.queue,
        schedule=rule.schedule,
        window_s=rule.window_s,
        min_jobs=rule.min_jobs,
        url=shown_url(rule.url),
        signed=rule.secret is not None,
        quiet=rule.quiet,
        tz=rule.zone,
        enabled=rule.enabled,
        declared=rule.declared,
        edited=rule.edited,
        state=word if rule.enabled else "off",
        open=len(known.open),
    )


def _episode_view(episode: Episode) -> EpisodeView:
    return EpisodeView(
        id=episode.id,
        rule=episode.rule,
        condition=episode.condition,
        subject=prose(episode.subject),
        value=episode.value,
        value_text=shown_value(episode.condition, episode.value),
        above=episode.above,
        opened_at=to_datetime(episode.opened_at),
        closed_at=optional_datetime(episode.closed_at),
        silent=episode.silent,
        opened_job=episode.opened_job,
        closed_job=episode.closed_job,
    )
