"""Alert rules: what they hold, and the checks and defaults of their fields."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct, structs

from . import names
from .errors import BadOption
from .instant import Duration, seconds
from .quiet_times import checked_quiet

MAX_RULES: Final = 100
MAX_WINDOW_S: Final = 86_400.0
_MAX_HOLD_S: Final = 7 * 86_400.0
_MAX_URL: Final = 2_000
_MIN_SECRET: Final = 16
_MAX_SECRET: Final = 500
_HYSTERESIS: Final = 0.8
_RULE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,62}")
_RULE_TEXT: Final = "use 1 to 63 letters, digits, '_', '-' or '.', not starting with '-' or '.'"
_PERCENT: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")


class Condition(StrEnum):
    """What a rule watches.

    *dead_rate*: the share of ended jobs that are dead. *longest_wait*: for how long the job that is
    due longest waits. *backlog*: how many jobs are due and do not run. *missed_schedule*: ticks of
    a schedule that did not fire. *no_worker*: a queue that no live worker serves. *error_returned*:
    an error that was marked as resolved came back.
    """

    DEAD_RATE = "dead_rate"
    LONGEST_WAIT = "longest_wait"
    BACKLOG = "backlog"
    MISSED_SCHEDULE = "missed_schedule"
    NO_WORKER = "no_worker"
    ERROR_RETURNED = "error_returned"


OF_QUEUES: Final = frozenset(
    {Condition.DEAD_RATE, Condition.LONGEST_WAIT, Condition.BACKLOG, Condition.NO_WORKER}
)
_DEFAULT_ABOVE: Final = {
    Condition.DEAD_RATE: 0.05,
    Condition.LONGEST_WAIT: 300.0,
    Condition.BACKLOG: 1_000.0,
    Condition.MISSED_SCHEDULE: 0.0,
    Condition.NO_WORKER: 0.0,
    Condition.ERROR_RETURNED: 0.0,
}
# A deploy leaves a queue without a worker for seconds.
_DEFAULT_FOR_S: Final = {Condition.NO_WORKER: 60.0}


class AlertRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When an episode opens and closes, and who is told.

    An episode opens when the value has been above ``above`` for ``for_s``, and closes when it has
    been at or under ``below`` for ``clear_s``. Every queue (schedule, error) is judged by itself;
    ``queue`` or ``schedule`` names a single one. ``window_s``: over how long a dead rate is taken,
    ``min_jobs``: of how many ended jobs at least. ``secret`` signs the messages; it is never shown.
    ``declared``: code declares the rule; ``edited``: an operator changed it, and what code declares
    does not overwrite it.
    """

    name: str
    condition: Condition
    above: float
    below: float
    for_s: float = 0.0
    clear_s: float = 60.0
    queue: str | None = None
    schedule: str | None = None
    window_s: float = 300.0
    min_jobs: int = 1
    url: str | None = None
    secret: str | None = None
    quiet: tuple[str, ...] = ()
    zone: str = "UTC"
    enabled: bool = True
    declared: bool = False
    edited: bool = False

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("name", self.name), ("condition", self.condition)]

    def __repr__(self) -> str:
        """Without the address and the secret."""
        return f"AlertRule({self.name!r}, {self.condition}, above={self.above:g})"


def rule_name(value: str) -> str:
    """The name of a rule, or BadName."""
    return names.matched("alert", value, _RULE, _RULE_TEXT)


def new_rule(
    name: str,
    condition: str,
    *,
    above: Duration | None = None,
    below: Duration | None = None,
    hold: Duration | None = None,
    clear: Duration = 60,
    queue: str | None = None,
    schedule: str | None = None,
    window: Duration = 300,
    min_jobs: int = 1,
    url: str | None = None,
    secret: str | None = None,
    quiet: Sequence[str] = (),
    tz: str = "UTC",
    where: str = "alert",
) -> AlertRule:
    """A checked rule. Raises BadName, BadOption, BadDuration or BadCron (a time zone).

    ``above`` and ``below`` are a share (0.05 or "5%") for a dead rate, a duration for the longest
    wait, else a number. ``hold`` is the time for which the value must be above.
    """
    watched = _condition(condition, where)
    limit = _DEFAULT_ABOVE[watched] if above is None else _number(watched, above, f"{where}: above")
    low = limit * _HYSTERESIS if below is None else _number(watched, below, f"{where}: below")
    if low > limit:
        raise BadOption(f"{where}: below={low:g} is more than above={limit:g}: it must not be")
    if queue is not None and watched not in OF_QUEUES:
        raise BadOption(f"{where}: queue= is not for {watched}: leave it out")
    if schedule is not None and watched is not Condition.MISSED_SCHEDULE:
        raise BadOption(f"{where}: schedule= is for missed_schedule, not for {watched}")
    if isinstance(min_jobs, bool) or not 1 <= min_jobs <= 1_000_000:
        raise BadOption(f"{where}: min_jobs={min_jobs!r}: use a number from 1 to 1,000,000")
    for_s = _DEFAULT_FOR_S.get(watched, 0.0) if hold is None else hold
    return AlertRule(
        name=rule_name(name),
        condition=watched,
        above=limit,
        below=low,
        for_s=_span(for_s, f"{where}: for", _MAX_HOLD_S),
        clear_s=_span(clear, f"{where}: clear", _MAX_HOLD_S),
        queue=None if queue is None else names.queue_name(queue),
        schedule=None if schedule is None else names.schedule_name(schedule),
        window_s=max(60.0, _span(window, f"{where}: window", MAX_WINDOW_S)),
        min_jobs=min_jobs,
        url=None if url is None else webhook_url(url, where=where),
        secret=None if secret is None else webhook_secret(secret, where=where),
        quiet=checked_quiet(quiet, tz),
        zone=tz,
    )


def edited_rule(rule: AlertRule, changes: Mapping[str, Any]) -> AlertRule:
    """The rule with other values, by the names of ``new_rule``, checked again. A new ``above``
    without ``below`` sets both."""
    given: dict[str, Any] = {
        "condition": rule.condition,
        "above": rule.above,
        "below": rule.below,
        "hold": rule.for_s,
        "clear": rule.clear_s,
        "queue": rule.queue,
        "schedule": rule.schedule,
        "window": rule.window_s,
        "min_jobs": rule.min_jobs,
        "url": rule.url,
        "secret": rule.secret,
        "quiet": rule.quiet,
        "tz": rule.zone,
    }
    if "above" in changes or "condition" in changes:
        given["below"] = None
    if "condition" in changes:
        given |= {"above": None, "queue": None, "schedule": None}
    edited = new_rule(rule.name, where=f"alert {rule.name!r}", **{**given, **changes})
    return structs.replace(edited, enabled=rule.enabled, declared=rule.declared, edited=True)


def webhook_url(url: str, *, where: str = "alert") -> str:
    """A checked address of a receiver, or BadOption. The text of the error does not contain the
    address: its path may be the secret of a chat service."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    else:
        is_valid = is_valid and parts.username is None and parts.password is None
    if not is_valid or len(url) > _MAX_URL or not url.isprintable() or " " in url or "\\" in url:
        raise BadOption(
            f"{where}: url is no address of a receiver: use https://host/path without a user"
        )
    return url


def webhook_secret(secret: str, *, where: str = "alert") -> str:
    """A checked secret, or BadOption without the secret in its text."""
    if not _MIN_SECRET <= len(secret) <= _MAX_SECRET or not secret.isprintable():
        raise BadOption(
            f"{where}: secret has {len(secret)} characters: use {_MIN_SECRET} to {_MAX_SECRET} "
            "printable ones, for example whsec_ and 32 random bytes in base64"
        )
    return secret


def shown_url(url: str | None) -> str | None:
    """The address without its path and query, which may hold a secret."""
    if url is None:
        return None
    parts = urlsplit(url)
    rest = "/…" if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{rest}"


def _condition(condition: str, where: str) -> Condition:
    try:
        return Condition(condition)
    except ValueError:
        known = ", ".join(Condition)
        raise BadOption(f"{where}: condition={condition!r} is not known: use {known}") from None


def _number(condition: Condition, value: Duration, field: str) -> float:
    if condition is Condition.LONGEST_WAIT:
        return seconds(value, field=field)
    share = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if share is not None and condition is Condition.DEAD_RATE:
        number = float(share[1]) / 100
    else:
        try:
            number = float(value)  # pyright: ignore[reportArgumentType]  -- TypeError is caught
        except (TypeError, ValueError):
            raise BadOption(f"{field}={value!r} is not a number") from None
    maximum = 1.0 if condition is Condition.DEAD_RATE else 1e12
    if not 0 <= number <= maximum:
        hint = 'a share from 0 to 1, or text such as "5%"' if maximum == 1 else "0 or more"
        raise BadOption(f"{field}={value!r} is out of range: use {hint}")
    return number


def _span(value: Duration, field: str, maximum_s: float) -> float:
    span_s = seconds(value, field=field)
    if span_s > maximum_s:
        raise BadOption(f"{field}={value!r} is longer than {maximum_s / 3600:g} hours")
    return span_s
