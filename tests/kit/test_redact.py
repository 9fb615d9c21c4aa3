"""Redaction: no secret in what is displayed or logged."""

import time

import pytest

from forge_jobs.kit import redact


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("sqlite:///forge.db", "sqlite:///forge.db"),
        ("postgresql://u@host/db", "postgresql://u@host/db"),
        ("postgresql://u:geheim@host:5432/db", "postgresql://u:***@host:5432/db"),
        ("redis://:geheim@host/0", "redis://:***@host/0"),
        ("postgresql://u:ge%40heim@host/db?a=1", "postgresql://u:***@host/db?a=1"),
        ("postgresql://u@/db?password=geheim&a=1", "postgresql://u@/db?password=***&a=1"),
        ("pg://u@/db?listen_url=pg%3A%2F%2Fu%3Ageheim%40h", "pg://u@/db?listen_url=***"),
        ("http://[geheim", "***"),
    ],
)
def test_P5_addresses_lose_their_password(address: str, shown: str) -> None:
    assert redact.url(address) == shown


def test_P5_passwords_inside_other_text_are_hidden() -> None:
    message = "could not connect to postgresql://u:geheim@host/db, nor to redis://:geheim@h"
    hidden = redact.text(message)
    assert "geheim" not in hidden
    assert "postgresql://u:***@host/db" in hidden


def test_text_without_secrets_is_unchanged() -> None:
    message = "at 10:30 a@b.c said: see http://host/path"
    assert redact.text(message) == message


@pytest.mark.parametrize(
    "name", ["password", "DB_PASSWORD", "passwd", "api_key", "apiKey", "token", "client_secret"]
)
def test_secret_fields(name: str) -> None:
    assert redact.is_secret_name(name)


@pytest.mark.parametrize("name", ["path", "passenger", "keyword", "subject", "compass_course"])
def test_harmless_fields(name: str) -> None:
    assert not redact.is_secret_name(name)


def test_long_words_cost_linear_time() -> None:
    began = time.thread_time()
    assert redact.text("y" * 1_000_000) == "y" * 1_000_000
    assert time.thread_time() - began < 5
