"""Write the schema of each store as a file for readers: `docs/schema/sqlite.sql`, `postgres.sql`.

`python -m scripts.schema_dump` makes both anew after a migration was added; a test compares them
with the stores. They show what the migrations add up to: tables, columns and indexes, and on
Postgres the signatures of the functions. Nothing reads them at run time.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "schema"
SCHEMA = "forge"
HEAD = (
    "-- Made by `python -m scripts.schema_dump`; kept true by tests/repository/test_schema_dump.py."
)

COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
    CASE WHEN a.attidentity <> '' THEN 'GENERATED AS IDENTITY'
         ELSE 'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid) END
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'r' AND a.attnum > 0
    AND NOT a.attisdropped
ORDER BY c.relname, a.attnum
"""
INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname = $1 ORDER BY indexname"
FUNCTIONS = """
SELECT p.proname, pg_get_function_identity_arguments(p.oid), pg_get_function_result(p.oid)
FROM pg_proc p WHERE p.pronamespace = $1::regnamespace ORDER BY p.proname
"""
# Servers before 14 leave out the IN of a procedure's arguments.
_IN = re.compile(r"(?:(?<=^)|(?<=, ))IN ")


def sqlite_dump(file: Path) -> str:
    """The statements that made the tables and indexes of a SQLite store."""
    connection = sqlite3.connect(file)
    try:
        found = connection.execute(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
            " ORDER BY type DESC, name"
        )
        statements = [f"{statement};" for (statement,) in found]
    finally:
        connection.close()
    return "\n\n".join([HEAD, *statements]) + "\n"


async def postgres_dump(connection: Any, schema: str) -> str:
    """Tables, indexes and function signatures of a Postgres schema, under the name `forge`."""
    tables: dict[str, list[str]] = {}
    for table, column, kind, required, default in await connection.fetch(COLUMNS, schema):
        parts = [column, kind, default or "", "NOT NULL" if required else ""]
        tables.setdefault(table, []).append("    " + " ".join(filter(None, parts)))
    blocks = [
        f"CREATE TABLE {schema}.{table} (\n" + ",\n".join(columns) + "\n);"
        for table, columns in tables.items()
    ]
    indexes = [f"{row[0]};" for row in await connection.fetch(INDEXES, schema)]
    functions = [
        f"-- {name}({_IN.sub('', arguments)}) RETURNS {result}"
        for name, arguments, result in await connection.fetch(FUNCTIONS, schema)
    ]
    text = "\n\n".join([HEAD, *blocks, "\n".join(indexes), "\n".join(functions)]) + "\n"
    return text.replace(f"{schema}.", f"{SCHEMA}.")


async def make_sqlite(folder: Path) -> str:
    """The dump of a fresh SQLite store below ``folder``."""
    from forge_jobs import open_storage

    store = open_storage(f"sqlite:///{folder}/jobs.db")
    await store.open()
    await store.close()
    return sqlite_dump(folder / "jobs.db")


async def make_postgres(url: str, schema: str) -> str:
    """The dump of a fresh store in ``schema`` of the server at ``url``."""
    import asyncpg

    from forge_jobs import open_storage

    store = open_storage(f"{url}{'&' if '?' in url else '?'}schema={schema}")
    await store.open()
    await store.close()
    connection: Any = await asyncpg.connect(url)
    try:
        return await postgres_dump(connection, schema)
    finally:
        await connection.close()


def main() -> int:
    from tests.postgres.server import private_server

    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        (FOLDER / "sqlite.sql").write_text(asyncio.run(make_sqlite(Path(folder))))
    with private_server() as server:
        (FOLDER / "postgres.sql").write_text(asyncio.run(make_postgres(server.url(), SCHEMA)))
    print(f"wrote {FOLDER.relative_to(ROOT)}/sqlite.sql and postgres.sql")
    return 0


if __name__ == "__main__":
    sys.exit(main())
