"""``forge`` on Postgres: creating, migrating and dropping a database, and one line per error."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from forge_jobs.backends.postgres.connection import error_mapping
from tests.cli.conftest import InProcess

from .server import PASSWORD, PrivateServer

SECRETS = (PASSWORD, "geheim", "wrong-word")


@pytest.fixture
def here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str
) -> InProcess:
    monkeypatch.setenv("COLUMNS", "200")
    return InProcess(url, capsys)


def refused(here: InProcess, url: str, *words: str, code: int = 1) -> str:
    """The error output of a command that fails: one line, without secrets."""
    here.url = url
    answer = here.forge(*(words or ("enqueue", "work", "--queue", "q")))
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith("forge: ")
    assert answer.err.count("\n") == 1
    assert not [secret for secret in SECRETS if secret in answer.err]
    return answer.err


def test_create_migrate_drop_and_reset(here: InProcess, postgres: PrivateServer) -> None:
    here.url = postgres.url(database="a life", schema="jobs_of_mine")
    assert here.forge("db", "status", "--json").data["current"] is None
    assert "forge db create" in here.forge("jobs", "list").err
    created = here.forge("db", "create", "--json").data
    assert (created["result"], created["current"]) == ("created", created["wanted"])
    assert here.forge("db", "migrate", "--json").data["result"] == "already up to date"
    assert "up to date" in here.forge("db", "status").out
    assert here.forge("enqueue", "send", "--queue", "mail").code == 0
    for command in ("drop", "reset"):
        refusal = here.forge("db", command)
        assert (refusal.code, "repeat with --force" in refusal.err) == (2, True)
    assert len(here.forge("jobs", "list", "--json").data["jobs"]) == 1
    assert here.forge("db", "reset", "--force").code == 0
    assert here.forge("jobs", "list", "--json").data["jobs"] == []
    assert here.forge("db", "drop", "--force").code == 0
    left = postgres.sql(
        "SELECT count(*) FROM pg_namespace WHERE nspname = 'jobs_of_mine'", database="a life"
    )
    assert left.strip() == "0"
    postgres.sql('DROP DATABASE "a life"')


def test_a_wrong_password(here: InProcess, postgres: PrivateServer) -> None:
    postgres.sql(
        "DROP ROLE IF EXISTS stranger", f"CREATE ROLE stranger LOGIN PASSWORD '{PASSWORD}'"
    )
    said = refused(here, postgres.url(user="stranger", password="wrong-word"))
    assert "check user and password of the address" in said
    said = refused(here, postgres.url(user="stranger") + "&password=geheim", "db", "status")
    assert "check user and password of the address" in said
    refused(here, postgres.url(user="stranger", password="wrong-word"), "doctor")


def test_an_unknown_database(here: InProcess, postgres: PrivateServer) -> None:
    said = refused(here, postgres.url(database="nowhere", password="geheim"))
    assert "database 'nowhere' does not exist: create it with forge db create" in said


def test_a_server_that_is_too_old(here: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_mapping, "OLDEST_SERVER", 99)
    assert "99 or newer is needed" in refused(here, here.url)
    assert "99 or newer is needed" in refused(here, here.url, "db", "migrate")


def test_missing_rights(here: InProcess, postgres: PrivateServer, schema: str) -> None:
    assert here.forge("db", "create").code == 0
    postgres.sql("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN")
    said = refused(here, postgres.url(user="guest", schema="guests"), "db", "create")
    assert "permission denied for database postgres" in said
    said = refused(here, postgres.url(user="guest", schema=schema))
    assert f"permission denied for schema {schema}: have it granted" in said
    here.url = postgres.url(user="guest", schema="guests")
    sick = here.forge("doctor")
    assert sick.code == 1
    assert "CREATE SCHEMA guests AUTHORIZATION guest" in sick.out


def test_a_user_that_may_only_read(here: InProcess, postgres: PrivateServer, schema: str) -> None:
    assert here.forge("db", "create").code == 0
    postgres.sql(
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN SUPERUSER",
        "ALTER ROLE reader SET default_transaction_read_only = on",
    )
    said = refused(here, postgres.url(user="reader", schema=schema))
    assert "a user without default_transaction_read_only" in said
    sick = here.forge("doctor")
    assert (sick.code, "read-only" in sick.out) == (1, True)


def test_a_schema_that_is_newer_than_the_code(here: InProcess, postgres: PrivateServer) -> None:
    url = postgres.url(schema="from_the_future")
    here.url = url
    assert here.forge("db", "create").code == 0
    postgres.sql("UPDATE from_the_future.meta SET value = '999' WHERE name LIKE 'schema.%'")
    for words in (["jobs", "list"], ["enqueue", "send"], ["db", "migrate"]):
        said = refused(here, url, *words)
        assert "version 999" in said
        assert "upgrade forge-jobs" in said
    assert "upgrade forge-jobs" in here.forge("db", "status").out
    assert here.forge("doctor").code == 1


def test_a_server_that_does_not_answer(here: InProcess) -> None:
    said = refused(here, "postgresql://me:geheim@127.0.0.1:1/shop")
    assert "check host and port of the address, and that the server runs" in said
    assert "cannot be reached" in refused(here, "postgresql://me:geheim@no.invalid/shop")


def test_a_database_in_another_encoding(here: InProcess, postgres: PrivateServer) -> None:
    postgres.sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    said = refused(here, postgres.url(database="latin"), "db", "create")
    assert "encoding LATIN1 and UTF8 is needed" in said


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("postgresql://me:geheim@db/shop?schema=Bad-Name", "schema='Bad-Name' is not allowed"),
        ("postgresql://me:geheim@db/shop?pooler=maybe", "pooler='maybe'"),
        ("postgresql://me:geh/eim-geheim@db/shop", "%2F for '/'"),
        ("postgresql://me:geh#eim-geheim@db/shop", "%23 for a '#'"),
        ("postgresql://me:geheim@db:port/shop", "port of the address"),
    ],
)
def test_an_address_that_cannot_be_read(here: InProcess, url: str, named: str) -> None:
    said = refused(here, url, code=2)
    assert named in said
    assert "geh" not in said.replace("'geheim'", "")


def test_an_option_that_the_server_does_not_know(here: InProcess) -> None:
    said = refused(here, f"{here.url}&colour=blue", code=2)
    assert '"colour": take that option out of the address' in said


def test_no_secret_is_shown_without_an_error(here: InProcess, postgres: PrivateServer) -> None:
    direct = postgres.url(password="geheim")
    here.url = f"{here.url}&password=geheim&listen_url={quote(direct, safe='')}"
    for words in (["db", "create"], ["db", "status"], ["doctor"], ["db", "drop", "--force"]):
        answer = here.forge(*words)
        assert answer.code == 0, answer.err
        assert "geheim" not in answer.out + answer.err
    assert here.forge("db", "create").code == 0


def test_without_the_driver(here: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    assert "pip install 'forge-jobs[postgres]'" in refused(here, here.url)


@pytest.mark.processes
def test_a_worker_that_cannot_log_in_reports_it_and_exits(
    postgres: PrivateServer, tmp_path: Path
) -> None:
    postgres.sql(
        "DROP ROLE IF EXISTS stranger", f"CREATE ROLE stranger LOGIN PASSWORD '{PASSWORD}'"
    )
    url = postgres.url(user="stranger", password="wrong-word")
    (tmp_path / "shop.py").write_text(
        f"from forge_jobs import Forge\nforge = Forge({url!r})\n"
        "@forge.task\ndef work() -> None: ...\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "forge_jobs", "worker", "shop:forge"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "refused the login" in said
    assert "Traceback" not in said
    assert "wrong-word" not in said
