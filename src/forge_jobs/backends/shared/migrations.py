"""Loads numbered forward migrations: ``0001_name.sql``, ``0002_name.sql`` … of a backend."""

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

_FILE: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from schema ``number - 1`` to schema ``number``."""

    number: int
    name: str
    text: str


def load(package: str) -> tuple[Migration, ...]:
    """All migrations of a package in order; a gap or a double number is an error."""
    found: list[Migration] = []
    for entry in files(package).iterdir():
        named = _FILE.fullmatch(entry.name)
        if named is not None:
            found.append(Migration(int(named[1]), named[2], entry.read_text(encoding="utf-8")))
    found.sort(key=lambda migration: migration.number)
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        numbers = ", ".join(str(migration.number) for migration in found)
        raise ValueError(f"the migrations in {package} are not numbered 1, 2, 3 …: {numbers}")
    return tuple(found)
