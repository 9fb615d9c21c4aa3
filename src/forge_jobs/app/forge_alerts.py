"""The alert rules that a Forge declares: ``forge.alert``."""

from typing import TypedDict, Unpack

from forge_jobs.client.options import check_names
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import Duration

from .forge_events import ForgeEvents


class AlertOptions(TypedDict, total=False):
    """The options of an alert rule; docs/alerts.md says what they mean.

    ``above`` and ``below``: a number, a share for a dead rate (``0.05``), a span for the longest
    wait (``"5m"``). ``hold``: how long the value must be above, ``clear``: how long it must be low
    again. ``window`` and ``min_jobs`` are for a dead rate. ``url`` is the webhook, ``secret`` signs
    its messages, ``quiet`` are quiet times in the time zone ``tz``.
    """

    above: Duration
    below: Duration
    hold: Duration
    clear: Duration
    queue: str
    schedule: str
    window: Duration
    min_jobs: int
    url: str
    secret: str
    quiet: list[str]
    tz: str


class ForgeAlerts(ForgeEvents):
    """The part of ``Forge`` that declares alert rules."""

    def alert(self, name: str, condition: str, **options: Unpack[AlertOptions]) -> None:
        """Declare an alert rule: ``forge.alert("late", "longest_wait", above="5m", url=HOOK)``.

        It is stored when a worker starts; a rule that an operator changed stays as it is.
        """
        # Imported here: producers do not load time zones.
        from forge_jobs.core.alert_rule import new_rule

        where = f"forge.alert({name!r})"
        check_names(options, tuple(AlertOptions.__annotations__), where=where)
        if name in self.registry.alerts:
            raise BadOption(f"{where} is declared twice: give the second one another name")
        self.registry.alerts[name] = new_rule(name, condition, where=where, **options)
