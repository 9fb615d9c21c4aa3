"""Secrets in running text, without a name and a sign beside them."""

import time

import pytest

from forge_jobs.kit import redact

LETTERS = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC0dF"
HEX = "0123456789abcdef" * 4
# Put together here, so that no scanner of repositories takes them for real ones.
TOKENS = {
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "aws session": "ASIA" + "IOSFODNN7EXAMPLE",
    "stripe": "sk_" + "live_" + LETTERS,
    "stripe restricted": "rk_" + "test_" + LETTERS,
    "stripe webhook": "whsec" + "_" + LETTERS,
    "github": "ghp" + "_" + LETTERS + "abcd",
    "github app": "ghs" + "_" + LETTERS + "abcd",
    "github fine": "github" + "_pat_" + "11ABCDEFG0" + LETTERS + "_" + LETTERS,
    "gitlab": "glpat" + "-" + LETTERS[:20],
    "slack": "xoxb" + "-1234567890-" + LETTERS[:24],
    "google": "AIza" + LETTERS + "abc",
    "google oauth": "ya29" + "." + LETTERS,
    "openai": "sk-" + LETTERS + LETTERS[:16],
    "openai project": "sk-" + "proj-" + LETTERS,
    "anthropic": "sk-" + "ant-api03-" + LETTERS,
    "npm": "npm" + "_" + LETTERS + "abcd",
    "pypi": "pypi-" + "AgEIcHlwaS5vcmc" + LETTERS,
    "sendgrid": "SG" + "." + LETTERS[:22] + "." + LETTERS + LETTERS[:11],
    "vault": "hvs" + "." + LETTERS,
    "digitalocean": "dop" + "_v1_" + HEX,
    "shopify": "shpat" + "_" + HEX[:32],
    "telegram": "123456789" + ":AA" + LETTERS + "a",
    "telegram address": "bot123456789" + ":AA" + LETTERS + "a",
    "jwt": "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiJ4In0." + LETTERS,
}


@pytest.mark.parametrize("token", TOKENS.values(), ids=list(TOKENS))
@pytest.mark.parametrize(
    "text",
    ["{}", "401 for {}: revoked", "sent '{}', then", "https://host/{}?y=1", "a={} b", "({})."],
)
def test_tokens_with_the_prefix_of_their_issuer_are_hidden(token: str, text: str) -> None:
    shown = redact.prose(text.format(token))
    assert shown == text.format("***")
    assert redact.prose(shown) == shown
    assert redact.value({"note": text.format(token)}) == {"note": shown}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Bearer {LETTERS}", "Bearer ***"),
        (f"invalid token {LETTERS} given", "invalid token *** given"),
        (f"Authorization: token {LETTERS}", "Authorization: ***"),
        ("wrong password correct7horse9battery", "wrong password ***"),
        (f"the API key {LETTERS}== is unknown", "the API key *** is unknown"),
        ("see postgresql://app:s3cret@db/app", "see postgresql://app:***@db/app"),
    ],
)
def test_a_random_word_after_a_secret_name_is_hidden(text: str, shown: str) -> None:
    assert redact.prose(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "job 01JCXYZ3NDEKTSV4RRFFQ69G5F failed",
        "request 3f2504e0-4f89-11d3-9a0c-0305e82c3301 of tenant asia-east1",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 on main",
        "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "md5:d41d8cd98f00b204e9800998ecf8427e token bucket empty",
        "/srv/ada/task-3f2504e0/disk-usage/sk-learn-notes/AKIA/ghp_notes.txt",
        "the token expired 15 minutes ago, the password is too short, a secret santa",
        "token 5 of 12 is unexpected, password rule 3, secret 42",
        "the token internationalization was read; password authentication failed",
        "task_live_updates, risk_test_cases, sk_test_ is a prefix",
        "token expires_in_30minutes and token 2026-11-18T12:00:00Z",
        "12:AAAA and 1700000000:AAbb and 10:30:aa",
        "pip install npm_config pypi-server SG.x.y hvs.conf ya29.txt",
        "Asia, AKIA is a prefix, ASIATIC, AKIAIOSFODNN7EXAMPLEANDMORE",
        "xoxo, xapp-store, AIzawl, glpat-short, whsec_short",
    ],
)
def test_prose_paths_ids_and_digests_are_shown(text: str) -> None:
    assert redact.prose(text) == text


@pytest.mark.parametrize("part", ["token a1", "sk-", "gh", "eyJ.", "1:AA", "AKIA", "token 1"])
def test_a_long_text_takes_linear_time(part: str) -> None:
    text = part * (200_000 // len(part))
    began = time.monotonic()
    redact.prose(text)
    assert time.monotonic() - began < 5
