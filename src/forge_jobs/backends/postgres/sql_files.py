"""Loads the SQL files of this backend and puts the configured schema's name into them.

The files are written for a schema called ``forge``. The name was validated when the address was
parsed; nothing else is ever put into the text of a statement.
"""

import re
from functools import cache
from typing import Final

from forge_jobs.backends.shared import migrations
from forge_jobs.backends.shared.migrations import Migration
from forge_jobs.backends.shared.sql_text import SqlText

_PACKAGE: Final = "forge_jobs.backends.postgres"
_SCHEMA: Final = re.compile(r"\bforge\.")


@cache
def statements(file: str, schema: str) -> dict[str, str]:
    """The named statements of one file, for that schema."""
    text = SqlText.load(f"{_PACKAGE}.sql", f"{file}.sql")
    return {name: within(statement, schema) for name, statement in text.items()}


@cache
def steps() -> tuple[Migration, ...]:
    """All migrations, with the schema name of the files."""
    return migrations.load(f"{_PACKAGE}.migrations")


def within(text: str, schema: str) -> str:
    """The text with another schema's name."""
    return _SCHEMA.sub(f"{schema}.", text)
