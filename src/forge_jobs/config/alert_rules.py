"""The alert rules of forge.toml: ``[alerts.NAME]`` tables."""

import os
from pathlib import Path
from typing import Any, Final, cast

from forge_jobs.core.alert_rule import AlertRule, new_rule
from forge_jobs.core.errors import BadConfig, Invalid

# What a table may hold, and what ``new_rule`` calls it.
_KEYS: Final = {
    "condition": "condition", "above": "above", "below": "below", "for": "hold", "clear": "clear",
    "queue": "queue", "schedule": "schedule", "window": "window", "min_jobs": "min_jobs",
    "url": "url", "secret_env": "secret", "quiet": "quiet", "tz": "tz",
}  # fmt: skip


def alert_rules(path: Path, table: object) -> tuple[AlertRule, ...]:
    """The checked rules of ``[alerts]``. BadConfig names the file, the rule and the remedy."""
    if not isinstance(table, dict):
        raise BadConfig(f"{path}: alerts must be a table, for example [alerts.late]")
    return tuple(
        _rule(f"{path}: alerts.{name}", name, value)
        for name, value in cast("dict[str, Any]", table).items()
    )


def _rule(where: str, name: str, value: object) -> AlertRule:
    if not isinstance(value, dict):
        raise BadConfig(f'{where} must be a table with condition = "backlog"')
    given = cast("dict[str, Any]", value)
    for key in given:
        if key not in _KEYS:
            raise BadConfig(f"{where}: unknown key {key!r}; known keys are {', '.join(_KEYS)}")
    if "condition" not in given:
        raise BadConfig(f'{where}: condition is missing: write condition = "backlog"')
    fields: dict[str, Any] = {_KEYS[key]: inner for key, inner in given.items()}
    if "secret" in fields:
        fields["secret"] = _secret(where, fields["secret"])
    try:
        return new_rule(name, fields.pop("condition"), where=where, **fields)
    except (Invalid, TypeError) as error:
        raise BadConfig(f"{where}: {error}") from error


def _secret(where: str, variable: object) -> str:
    value = os.environ.get(variable) if isinstance(variable, str) else None
    if not value:
        raise BadConfig(f"{where}: secret_env names {variable!r}, which is not set: export it")
    return value
