"""Parsing Postgres addresses."""

import pytest

from forge_jobs.backends.postgres.connection import address
from forge_jobs.core.errors import BadUrl


def test_our_options_are_taken_out_and_the_rest_is_left_to_the_driver() -> None:
    read = address.parse("postgres://me@db:5433/shop?schema=jobs&sslmode=require&pooler=on")
    assert read.dsn == "postgresql://me@db:5433/shop?sslmode=require"
    assert (read.schema, read.pooled, read.database) == ("jobs", True, "shop")
    assert read.channel == "jobs_wake"
    assert read.listen_dsn == read.dsn


def test_defaults() -> None:
    read = address.parse("postgresql://me@db/shop")
    assert (read.schema, read.pooled, read.many_hosts) == ("forge", None, False)


def test_a_password_is_never_shown() -> None:
    read = address.parse("postgresql://me:top-secret@db/shop?schema=jobs")
    assert "top-secret" in read.dsn
    assert "top-secret" not in read.location


def test_several_hosts() -> None:
    read = address.parse("postgresql://me@one:5432,two:5432/shop")
    assert read.many_hosts
    assert read.dsn == "postgresql://me@one:5432,two:5432/shop"


def test_a_direct_address_for_notifications() -> None:
    read = address.parse("postgresql://me@pool/shop?listen_url=postgresql%3A%2F%2Fme%40db%2Fshop")
    assert read.listen_dsn == "postgresql://me@db/shop"
    assert read.dsn == "postgresql://me@pool/shop"


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("postgresql://me@db/shop?schema=Jobs", "schema"),
        ("postgresql://me@db/shop?schema=pg_jobs", "schema"),
        ("postgresql://me@db/shop?schema=a%22b", "schema"),
        ("postgresql://me@db/shop?schema=" + "x" * 49, "schema"),
        ("postgresql://me@db/shop?pooler=maybe", "pooler"),
        ("postgresql://me@db/shop?listen_url=sqlite:///x", "listen_url"),
        ("postgresql://me@db/shop#x", "#"),
        ("mysql://me@db/shop", "mysql"),
        ("postgresql://[me@db/shop", "cannot be read"),
    ],
)
def test_a_bad_part_is_named(url: str, named: str) -> None:
    with pytest.raises(BadUrl, match=named):
        address.parse(url)
