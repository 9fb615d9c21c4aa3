"""Searches for secrets in every encoding in which they may have been written."""

import base64
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import asyncpg


def encodings(secret: str) -> list[bytes]:
    """Plain, hex, URL-quoted, and base64 at each of the three alignments."""
    raw = secret.encode()
    found = [raw, raw.hex().encode(), quote(secret, safe="").encode()]
    for ahead in range(3):
        # The characters at both ends depend on the neighbouring bytes.
        text = base64.b64encode(b"\0" * ahead + raw + b"\0" * 3)
        begin = -(-ahead * 8 // 6)
        inner = text[begin : (ahead + len(raw)) * 8 // 6]
        found += [inner, inner.replace(b"+", b"-").replace(b"/", b"_")]
    return found


def contains_secret(data: bytes, secret: str) -> bool:
    return any(shape in data for shape in encodings(secret))


def files(folder: Path) -> bytes:
    """The contents of all files of a database below a folder."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and ".db" in str(path))
    assert found
    return b"\n".join(path.read_bytes() for path in found)


async def tables(url: str) -> bytes:
    """The contents of all tables of the job store and the gateway, by COPY."""
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


def leaks(sources: dict[str, bytes], secrets: Iterable[str]) -> list[str]:
    """Where each secret was found; empty if there is no leak."""
    return [
        f"{secret[:6]}… in {name}"
        for secret in secrets
        for name, data in sources.items()
        if contains_secret(data, secret)
    ]
