"""Looking for secrets in whatever shape they may have been written down."""

import base64
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import asyncpg


def shapes(secret: str) -> list[bytes]:
    """As it is, in hex, in a URL, and within base64, wherever it begins there."""
    raw = secret.encode()
    found = [raw, raw.hex().encode(), quote(secret, safe="").encode()]
    for ahead in range(3):
        # The characters at both ends depend on what stands before and behind.
        text = base64.b64encode(b"\0" * ahead + raw + b"\0" * 3)
        begin = -(-ahead * 8 // 6)
        inner = text[begin : (ahead + len(raw)) * 8 // 6]
        found += [inner, inner.replace(b"+", b"-").replace(b"/", b"_")]
    return found


def holds(data: bytes, secret: str) -> bool:
    return any(shape in data for shape in shapes(secret))


def files(folder: Path) -> bytes:
    """Everything below a folder that belongs to a database: its file, log and companions."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and ".db" in str(path))
    assert found
    return b"\n".join(path.read_bytes() for path in found)


async def tables(url: str) -> bytes:
    """The contents of all tables of the queue and the gateway, as Postgres copies them out."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    schema = query.pop("schema")
    connection: Any = await asyncpg.connect(parts._replace(query=urlencode(query)).geturl())
    try:
        named = await connection.fetch(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = ANY($1::text[])",
            [schema, f"{schema}_gateway"],
        )
        assert len(named) > 5
        out = io.BytesIO()
        for row in named:
            part = io.BytesIO()
            await connection.copy_from_table(
                row["tablename"], schema_name=row["schemaname"], output=part, format="binary"
            )
            out.write(part.getvalue())
        return out.getvalue()
    finally:
        await connection.close()


def leaks(schemas: dict[str, bytes], secrets: Iterable[str]) -> list[str]:
    """Where each secret was found; empty is good."""
    return [
        f"{secret[:6]}… in {name}"
        for secret in secrets
        for name, data in schemas.items()
        if holds(data, secret)
    ]
