"""Numbered forward migrations, and the rule by which old and new code share one schema.

A backend has its migrations as ``0001_name.sql``, ``0002_name.sql`` … in a package. A schema has
two numbers. *additive* is the number of the last migration applied; code that knows fewer ignores
the rest. *compatible* is the number of the last migration that older code cannot live with; code
that knows fewer migrations than that must not use the store. A migration says in its first line
which it is: ``-- compatibility: additive`` or ``-- compatibility: breaking``. The first migration
creates the schema and is always breaking.
"""

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from forge_jobs.core.errors import SchemaMismatch
from forge_jobs.store.store import SchemaStatus

_FILE: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_ADDITIVE: Final = "-- compatibility: additive\n"
_BREAKING: Final = "-- compatibility: breaking\n"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from schema ``number - 1`` to schema ``number``."""

    number: int
    name: str
    text: str

    @property
    def breaking(self) -> bool:
        """Whether code that does not know this migration must not use the schema after it."""
        return self.number == 1 or self.text.startswith(_BREAKING)


def load(package: str) -> tuple[Migration, ...]:
    """All migrations of a package in order; a gap, a double number or a missing first line is an
    error."""
    found: list[Migration] = []
    for entry in files(package).iterdir():
        named = _FILE.fullmatch(entry.name)
        if named is not None:
            found.append(Migration(int(named[1]), named[2], entry.read_text(encoding="utf-8")))
    found.sort(key=lambda migration: migration.number)
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        numbers = ", ".join(str(migration.number) for migration in found)
        raise ValueError(f"the migrations in {package} are not numbered 1, 2, 3 …: {numbers}")
    for migration in found[1:]:
        if not migration.text.startswith((_ADDITIVE, _BREAKING)):
            raise ValueError(
                f"migration {migration.number} ({migration.name}) of {package} does not begin with "
                f"{_ADDITIVE.strip()!r} or {_BREAKING.strip()!r}"
            )
    return tuple(found)


def compatible(steps: tuple[Migration, ...]) -> int:
    """The compatible number after these migrations."""
    return max((step.number for step in steps if step.breaking), default=0)


def check(subject: str, found: SchemaStatus, *, may_migrate: bool = False) -> None:
    """SchemaMismatch unless this code can use the schema; ``may_migrate``: a schema that is missing
    or older is no error, because the caller migrates it. ``subject`` names the schema."""
    if found.is_too_new:
        raise SchemaMismatch(
            f"{subject} has version {found.current}, which needs a release of forge-jobs that "
            f"knows version {found.compatible}; this release knows up to {found.wanted}: upgrade "
            "forge-jobs, or use another schema or database"
        )
    if found.is_complete or may_migrate:
        return
    if found.current is None:
        had = "none of our tables yet"
    elif found.current < found.wanted:
        had = f"version {found.current}"
    else:
        sets = ", ".join(found.outdated_functions)
        had = f"version {found.current} without current functions ({sets})"
    raise SchemaMismatch(
        f"{subject} has {had} and {found.wanted} is wanted: run `forge db migrate`"
    )
