"""Stores the alert rules that code and forge.toml declare, without undoing what operators changed.

The first worker that declares a rule creates it. Later declarations change it, as long as no
operator has edited it. A rule that nobody declares any more stays until somebody removes it.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from forge_jobs.core.alert_rule import AlertRule
from forge_jobs.store.alerts import AlertRules
from forge_jobs.store.store import Store


async def ensure_alerts(store: Store, rules: Iterable[AlertRule]) -> None:
    """Store declared rules; nothing is written when nothing changes."""
    for rule in rules:
        await AlertRules(store).put(rule.name, _declaring(replace(rule, declared=True)))


def _declaring(rule: AlertRule) -> Callable[[AlertRule | None], AlertRule | None]:
    def change(known: AlertRule | None) -> AlertRule | None:
        if known is None:
            return rule
        if known.edited or not known.declared or known == rule:
            return None
        return rule

    return change
