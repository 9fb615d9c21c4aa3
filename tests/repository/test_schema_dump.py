"""The schemas in docs/schema are those that the migrations make."""

from pathlib import Path

from scripts import schema_dump
from tests.postgres.schemas import Schemas
from tests.postgres.server import PrivateServer

REMEDY = "run `python -m scripts.schema_dump` and commit the result"


async def test_sqlite(project_root: Path, tmp_path: Path) -> None:
    committed = (project_root / "docs" / "schema" / "sqlite.sql").read_text()
    assert await schema_dump.make_sqlite(tmp_path) == committed, REMEDY


async def test_postgres(project_root: Path, postgres: PrivateServer, schemas: Schemas) -> None:
    committed = (project_root / "docs" / "schema" / "postgres.sql").read_text()
    found = await schema_dump.make_postgres(postgres.url(), schemas.unused())
    assert found == committed, REMEDY
