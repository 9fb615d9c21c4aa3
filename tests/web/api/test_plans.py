"""On SQLite no page and no route that looks reads the table of jobs without an index or a key.

A list goes from the newest job downwards until its page is full. This says nothing about how far it
has to go when few jobs match: a tag, a piece of an error or a rare state may lead it far.
"""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.backends.sqlite import reader
from forge_jobs.core.job import NewJob
from forge_jobs.web import Role
from forge_jobs.web.api.all import ROUTES
from forge_jobs.web.api.openapi import place
from forge_jobs.web.pages.all import PAGES
from tests.web.panel import panel

_FILTERS = (
    "", "?status=dead", "?status=pending,failed", "?queue=q1", "?queue=q1&status=done",
    "?kind=send", "?tag=t1", "?from=2026-01-01T00:00:00Z", "?queue=q1&kind=send&status=dead",
)  # fmt: skip


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> dict[str, None]:
    """Everything a reader was asked."""
    seen: dict[str, None] = {}
    connect = reader.connect

    def traced(*given: Any, **named: Any) -> sqlite3.Connection:
        made = connect(*given, **named)
        made.set_trace_callback(seen.setdefault)
        return made

    monkeypatch.setattr(reader, "connect", traced)
    return seen


async def test_pages_and_routes_look_through_indexes(
    tmp_path: Path, statements: dict[str, None]
) -> None:
    made = panel(f"sqlite:///{tmp_path}/web.db")
    store = await made.forge.aready()
    jobs = [
        NewJob(kind=f"k{n % 3}", queue=f"q{n % 4}", tags=(f"t{n % 5}",), delay_s=float(n % 2) * 60)
        for n in range(2_000)
    ]
    ids = [job.id for job in await store.jobs.enqueue(jobs)]
    while await store.ledger.fold(limit=500):
        pass
    paths = [place(route) for route in ROUTES if route.method == "GET"]
    paths += [page.path for page in PAGES]
    lists = [p + f for p in ("/api/jobs", "/jobs", "/dead", "/retries") for f in _FILTERS]
    async with made.client(Role.ADMIN) as client:
        for path in [*paths, *lists]:
            where = path.replace("{id}", ids[7]).replace("{name}", "q1")
            assert (await client.get(where.replace("{action}", "retry"))).status_code < 500
    await made.forge.aclose()
    scans: list[str] = []
    with sqlite3.connect(tmp_path / "web.db") as connection:
        for text in statements:
            if "forge_jobs" not in text or text.lstrip().upper().startswith(("PRAGMA", "BEGIN")):
                continue
            steps = connection.execute(f"EXPLAIN QUERY PLAN {text}").fetchall()
            scans += [f"{step[3]}: {text}" for step in steps if _scans(step[3])]
    connection.close()
    assert any("forge_jobs" in text for text in statements)
    assert scans == []


def _scans(step: str) -> bool:
    return step.startswith("SCAN forge_jobs") and "USING" not in step
