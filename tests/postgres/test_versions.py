"""Which servers are supported: Postgres 13 and newer works, an older one is refused before anything
is created. The servers are real ones, of the oldest supported major and of the one before it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from forge_jobs import Forge, NotWritable, ServerTooOld
from forge_jobs.backends.postgres.connection import error_mapping
from forge_jobs.backends.postgres.store import PostgresStore
from forge_jobs.ops.doctor import Severity, examine
from forge_jobs.ops.storage import read_storage
from scripts import postgres_servers
from tests.cli.conftest import InProcess
from tests.cli.shell import Shell

from .server import PrivateServer, oldest, private_server

NEWEST = 18
DATABASES = "SELECT datname FROM pg_database ORDER BY 1"
SCHEMAS = "SELECT nspname FROM pg_namespace ORDER BY 1"
TABLES = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'i', 'S') ORDER BY 1"

APP = """
from forge_jobs import Forge

forge = Forge()

@forge.task(queue="q")
async def work() -> None: ...
"""


@pytest.fixture(scope="module")
def too_old() -> Iterator[PrivateServer]:
    major = postgres_servers.refused()
    if major is None:
        pytest.skip(f"nobody packages a server that old for {postgres_servers.here()}")
    with private_server(major=major) as server:
        yield server


@pytest.fixture
def untouched(too_old: PrivateServer) -> Iterator[PrivateServer]:
    """The old server has the same databases, schemas and tables before and after."""
    before = [too_old.sql(query) for query in (DATABASES, SCHEMAS, TABLES)]
    yield too_old
    assert [too_old.sql(query) for query in (DATABASES, SCHEMAS, TABLES)] == before


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> InProcess:
    monkeypatch.setenv("COLUMNS", "200")
    return InProcess("", capsys)


def check_message(text: str) -> None:
    """One line with the server's version, the least one, and what to do."""
    assert re.search(r" runs Postgres 12\.\d+ and 13 or newer is needed: upgrade the server", text)
    assert text.strip().count("\n") == 0


# ---------------------------------------------------------------------------- the oldest that works


async def test_u19_the_oldest_server_runs_jobs(oldest_postgres: PrivateServer) -> None:
    forge = Forge(oldest_postgres.url(schema="u19_jobs"))
    ran: list[int] = []

    @forge.task(kind="work", queue="q")
    async def work(n: int) -> int:
        ran.append(n)
        return n * n

    async with forge.worker(queues={"q": 5}):
        jobs = [await work.aenqueue(n) for n in range(20)]
        assert [await job.aresult(timeout="60s") for job in jobs] == [n * n for n in range(20)]
    assert sorted(ran) == list(range(20))
    version = oldest_postgres.sql("SHOW server_version").strip()
    assert version.startswith(f"{oldest()}.")
    await forge.aclose()


async def test_u19_the_doctor_and_the_storage_page_on_the_oldest_server(
    oldest_postgres: PrivateServer,
) -> None:
    store = PostgresStore(oldest_postgres.url(schema="u19_doctor"))
    await store.open()
    findings = {finding.subject: finding for finding in await examine(store)}
    assert [one for one in findings.values() if one.severity is Severity.ERROR] == []
    assert findings["server"].message.startswith(f"Postgres {oldest()}.")
    assert findings["notifications"].message.startswith("they arrive, after ")
    assert {"clock", "rights", "connections", "snapshots", "bloat", "schema"} <= set(findings)
    assert (await read_storage(store)).total_bytes > 0
    await store.close()


def test_u19_times_of_enqueueing_are_stored_uncompressed(oldest_postgres: PrivateServer) -> None:
    """A setting that CREATE TABLE accepts only since Postgres 16 holds on every server."""
    place = oldest_postgres.url(schema="u19_storage")
    with Forge(place) as forge:
        forge.enqueue("work", {}, queue="q")
    kept = oldest_postgres.sql(
        "SELECT attstorage FROM pg_attribute "
        "WHERE attrelid = 'u19_storage.counter_entries'::regclass AND attname = 'enqueued'"
    )
    assert kept.strip() == "e"


# ------------------------------------------------------------------------------ the one before it


async def test_u19_an_older_server_is_refused_by_forge(untouched: PrivateServer) -> None:
    forge = Forge(untouched.url())
    with pytest.raises(ServerTooOld) as caught:
        await forge.aenqueue("work", {}, queue="q")
    await forge.aclose()
    check_message(str(caught.value))
    assert isinstance(caught.value, NotWritable)
    assert caught.value.code == "server_too_old"
    assert (caught.value.version.split(".")[0], caught.value.oldest) == ("12", 13)


@pytest.mark.parametrize("database", ["postgres", "not_there_yet"])
def test_u19_an_older_server_gets_neither_database_nor_tables(
    here: InProcess, untouched: PrivateServer, database: str
) -> None:
    here.url = untouched.url(database=database)
    for command in ("create", "migrate"):
        answer = here.forge("db", command)
        assert (answer.code, answer.out) == (1, "")
        check_message(answer.err)


@pytest.mark.parametrize("command", ["db status", "doctor", "stats", "jobs list"])
def test_u19_commands_refuse_an_older_server(
    here: InProcess, untouched: PrivateServer, command: str
) -> None:
    here.url = untouched.url()
    answer = here.forge(*command.split())
    assert (answer.code, answer.out) == (1, "")
    check_message(answer.err)
    told = json.loads(here.forge(*command.split(), "--json").err)
    assert told["error"]["code"] == "server_too_old"


@pytest.mark.processes
def test_u19_forge_worker_refuses_an_older_server(untouched: PrivateServer, tmp_path: Path) -> None:
    (tmp_path / "old_app.py").write_text(APP)
    done = Shell(tmp_path).forge("worker", "old_app:forge", "--url", untouched.url())
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if "Postgres" in line]
    assert len(said) == 1, done.stderr
    check_message(said[0])


async def test_u19_the_doctor_names_the_remedy(untouched: PrivateServer) -> None:
    [finding] = await PostgresStore(untouched.url()).maintenance.examine()
    assert (finding.severity, finding.subject) == (Severity.ERROR, "server")
    assert re.fullmatch(r"Postgres 12\.\d+ is too old", finding.message)
    assert finding.cure == "upgrade the server to Postgres 13 or newer"


# ------------------------------------------------------------------------- what the tests run on


def test_u19_every_supported_major_is_pinned_and_documented(project_root: Path) -> None:
    assert postgres_servers.OLDEST == error_mapping.OLDEST_SERVER
    known = json.loads(postgres_servers.PINS.read_text(encoding="utf-8"))
    majors = {int(major) for major in known["linux-x64"]}
    assert majors == set(range(error_mapping.OLDEST_SERVER - 1, NEWEST + 1))
    for pins in known.values():
        for major, pin in pins.items():
            assert pin["version"].split(".")[0] == major
            assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", pin["integrity"])
    guide = (project_root / "docs" / "postgres.md").read_text(encoding="utf-8")
    assert f"Postgres {error_mapping.OLDEST_SERVER} to {NEWEST}" in guide
