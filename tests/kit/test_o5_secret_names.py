"""O5: one rule for secret names in keys and texts, on the words of a name."""

import io
import json
import logging
import random
import re
import string
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forge_jobs import BadConfig, config
from forge_jobs.kit import log, redact, secret_names

SECRET_NAMES = [
    "password", "passwd", "pwd", "pass", "password2", "password_confirmation", "db_password_prod",
    "DB_PASSWORD", "dbPassword", "PassWord", "userPasswords", "smtp_pass", "passphrase", "passcode",
    "api_key", "api-key", "apiKey", "API_KEY", "apikey", "X-Api-Key", "api.key", "api key",
    "private-key", "privateKey", "access_key", "AWS_SECRET_ACCESS_KEY", "access_key_id",
    "encryption_key", "signing_key", "SSHKey", "master_key", "AccountKey", "license_key",
    "jwt", "jwt2", "id_token", "authToken", "authtoken", "csrftoken", "refresh_tokens", "token",
    "otp", "totp_secret", "cvv", "cvc2", "card_number", "ssn", "pin", "card_pin", "pin_code",
    "session_id", "sessionId", "sessionid", "PHPSESSID", "connect.sid", "session-key",
    "secret", "client_secret", "secrets", "credential", "aws_credentials", "bearer",
    "Authorization", "Proxy-Authorization", "basic_auth", "auth", "cookie", "Set-Cookie",
    "security_code", "recovery_codes", "seed_phrase", "mysql_pwd", "X-Amz-Signature", "_csrf",
]  # fmt: skip
HARMLESS_NAMES = [
    "key", "keys", "keyboard", "keyword", "monkey", "turkey", "primary_key", "cache_key",
    "dedupe_key", "unique_key", "limit_key", "idempotency_key", "sort_key", "public_key", "keypad",
    "tokenizer", "tokenized", "max_tokens", "prompt_tokens", "total_tokens", "tokens_used",
    "token_count", "token_type", "token_bucket", "passenger", "passengers", "compass",
    "compass_course", "passport", "bypass", "first_pass", "passed", "pass_rate", "pinned", "ping",
    "spinning", "pinterest", "secretary", "author", "authored", "authority", "cookiecutter",
    "code", "status_code", "postcode", "country_code", "error_code", "card", "discard", "session",
    "session_count", "id", "user_id", "side", "inside", "number", "phone_number", "bearing",
    "path", "subject", "signature", "spot", "hotspot", "potpie", "sessions", "assassin", "", "-",
]  # fmt: skip
TEXTS = [
    'password = "{}"', "password: str = '{}'", "password: str | None = '{}'", "pwd={}&a=1",
    "{{'api_key': '{}'}}", '{{"X-Api-Key": "{}"}}', '{{\\"jwt\\": \\"{}\\"}}',
    "login(password2={})",
    "connect(password=b'{}', x=1)", "SecretStr(token='{}')", "token=SecretStr('{}')",
    "auth=('user', '{}')", "tokens: ['a', '{}']", "{{'credentials': {{'user': 'u', 'x': '{}'}}}}",
    'os.environ["DB_PASSWORD_PROD"] = "{}"', "headers['X-Api-Key'] = '{}'", 'set_password("{}")',
    'if token == "{}":', "('authorization', 'Basic {}')", "[(b'x-api-key', b'{}')]",
    "Authorization: Basic {}", "authorization=Basic {}",
    "Authorization: Bearer {}", "the header was bearer {}",
    'Authorization: Digest username="u", response="{}"', "Cookie: a=b; session_id={}; c=d",
    "Set-Cookie: x={}; Path=/", "curl -H 'X-Api-Key: {}' https://h.example", "api key: {}",
    "Access Key = {}", "--password {} --verbose", "['mysql', '--password', '{}']",
    "ALTER USER u PASSWORD '{}'", "<encryption_key>{}</encryption_key>", "password: a,{}",
    "postgresql://u:{}@h/d", "postgresql://u:a#{}@h/d", "postgresql://u:a/{}@h/d",
    "postgresql://u:a@{}@h/d", "https://h.example/x?access_token={}&y=1", "**password**: {}",
    "password:\n    '{}'", 'secret = """\nfirst\n{}\n"""', "password = (\n    '{}'\n)",
    "password='it\\'s {}'", "AccountKey={}==;Endpoint=x", "dbPassword : {}", "otp => {}",
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4\n{}\n-----END RSA PRIVATE KEY-----",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.{}", "password='open {}", "tokens=['open {}",
]  # fmt: skip
HARMLESS_TEXTS = [
    "at 10:30 a@b.c said: see http://host/path", "http://host:8080/path?email=a@b.c", "key: 5",
    "KeyError: 'x'", "max_tokens=5", "unexpected token '<' at 5", "status code: 404",
    "the token bucket: 5", '  File "/app/pass.py", line 5, in pass_on', "primary key = 5",
    "limit_key=tenant-1 lane=a", "a monkey: 1, a turkey: 2", "passenger='Ada'", "pinned=1",
]  # fmt: skip
SECRET = "hunter2x7"


@pytest.fixture(autouse=True)
def own_names() -> Iterator[None]:
    """Names added by a test are gone after it."""
    yield
    secret_names.read_added_names_with(config.redact_names)


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_o5_a_secret_name_hides_its_value_in_keys_texts_and_addresses(name: str) -> None:
    assert redact.is_secret_name(name)
    assert redact.value({name: SECRET}) == {name: "***"}
    assert redact.prose(f"with {name}={SECRET} and more") == f"with {name}=*** and more"
    assert SECRET not in redact.prose(f"{{'a': 1, '{name}': '{SECRET}'}}")
    assert SECRET not in redact.prose(json.dumps({name: SECRET, "b": 2}, indent=2))
    if " " not in name:
        assert SECRET not in redact.url(f"postgresql://u@h/d?a=1&{name}={SECRET}&b=2")


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_o5_a_harmless_name_hides_nothing(name: str) -> None:
    assert not redact.is_secret_name(name)
    assert redact.value({name: "shown"}) == {name: "shown"}
    for text in (f"with {name}=shown and more", f"{{'{name}': 'shown'}}"):
        assert redact.prose(text) == text


@pytest.mark.parametrize("text", TEXTS)
def test_o5_source_lines_reprs_headers_and_commands_are_redacted(text: str) -> None:
    hidden = redact.prose("before\n" + text.format(SECRET) + "\nafter: 5")
    assert SECRET not in hidden
    assert hidden.startswith("before\n")
    assert redact.prose(hidden) == hidden


REPRESENTATIONS: list[Callable[[str, str], str]] = [
    lambda name, value: repr({"a": 1, name: value, "b": "x"}),
    lambda name, value: json.dumps({"a": 1, name: value, "b": "x"}, ensure_ascii=False, indent=1),
    lambda name, value: json.dumps({"m": json.dumps({"a": 1, name: value, "b": "x"})}),
    lambda name, value: repr(json.dumps({"a": 1, name: value, "b": "x"})),
    lambda name, value: repr(repr({name: value})),
    lambda name, value: repr({name.encode(): value.encode()}),
    lambda name, value: repr({name: [value, "x", {"k": (value,)}]}),
    lambda name, value: repr([(name, value)]),
    lambda name, value: f"os.environ[{name!r}] = {value!r}  # comment",
]


def test_o5_no_quoting_of_a_value_shows_a_part_of_it() -> None:
    """Values with quotes, backslashes, brackets and line ends, in reprs, JSON and both nested."""
    chance = random.Random(5)
    characters = string.ascii_letters + " '\"\\,;:=&#@/[](){}<>\n\t-_.*é✓"
    for number in range(3_000):
        name = SECRET_NAMES[number % len(SECRET_NAMES)]
        ends = ["".join(chance.choices(characters, k=chance.randrange(12))) for _ in range(2)]
        text = REPRESENTATIONS[number % len(REPRESENTATIONS)](name, SECRET.join(ends))
        assert SECRET not in redact.prose(f"near {text} end"), text


def test_o5_other_keys_and_values_than_texts_are_kept() -> None:
    data = {1: "a", None: 2.5, ("x",): [True, None], "pwd": 5}
    assert redact.value(data) == {1: "a", None: 2.5, ("x",): [True, None], "pwd": "***"}


@pytest.mark.parametrize("text", HARMLESS_TEXTS)
def test_o5_other_texts_are_unchanged(text: str) -> None:
    assert redact.prose(text) == text


def test_o5_a_traceback_keeps_what_is_no_secret() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/app/mail.py", line 7, in send\n'
        f'    connect("db", password="{SECRET}", timeout=5)\n'
        f"ConnectionError: postgresql://app:{SECRET}@db/app refused, api-key: {SECRET}\n"
    )
    assert redact.prose(trace) == trace.replace(SECRET, "***")


@pytest.mark.parametrize(
    "part",
    ["y", "token=", "token=[", "token='x\n", "://a:", "://a:b@", "the password: x\n", "eyJ", "a.",
     "--a ", 'token="\\"', "authorization: a,", "token ", "-----BEGIN PRIVATE KEY-----", "\\",
     "password: a|", "<token>", "token('", "(", '"token",'],
)  # fmt: skip
def test_o5_long_texts_cost_linear_time(part: str) -> None:
    text = "token=" + part * (1_000_000 // len(part))
    began = time.thread_time()
    redact.prose(text)
    assert time.thread_time() - began < 10


def test_o5_names_are_added_by_the_environment_and_by_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forge.toml").write_text('redact_names = ["tax-id", "Kontonummer"]\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORGE_REDACT_NAMES", "iban, blood type")
    secret_names.read_added_names_with(config.redact_names)
    for name in ("iban", "IBANs", "customer_iban", "taxId", "TAX_ID_2", "taxid", "kontonummer",
                 "bloodType"):  # fmt: skip
        assert redact.value({name: SECRET}) == {name: "***"}
        assert SECRET not in redact.prose(f"failed for {name}={SECRET}")
    assert redact.value({"tax": 1, "id": 2, "ibandit": 3}) == {"tax": 1, "id": 2, "ibandit": 3}


@pytest.mark.parametrize(
    ("file", "environment", "message"),
    [
        ('redact_names = "iban"', "", r"forge.toml: redact_names must be a list"),
        ("redact_names = [5]", "", r"forge.toml: redact_names: 5 is no name: write words"),
        ("", "iban,--", r"FORGE_REDACT_NAMES: '--' is no name: write words"),
    ],
)
def test_o5_an_invalid_name_is_an_error_that_says_where(
    tmp_path: Path, file: str, environment: str, message: str
) -> None:
    (tmp_path / "forge.toml").write_text(file)
    with pytest.raises(BadConfig, match=message):
        config.load({"FORGE_REDACT_NAMES": environment}, folder=tmp_path)


@pytest.mark.parametrize("format", ["text", "json"])
def test_o5_log_lines_follow_the_rule(format: str) -> None:
    stream = io.StringIO()
    logger = logging.getLogger("forge_jobs.o5")
    before = list(logging.getLogger("forge_jobs").handlers)
    log.configure(format, stream=stream)  # type: ignore[arg-type]
    try:
        extra = {"api-key": SECRET, "detail": {"pwd": SECRET, "slots": 5}, "where": Path("/x")}
        try:
            raise ValueError(f"access_key={SECRET}")
        except ValueError:
            logger.warning("refused jwt=%s", SECRET, extra=extra, exc_info=True)
    finally:
        root = logging.getLogger("forge_jobs")
        root.handlers, root.propagate = before, True
    line = stream.getvalue()
    assert SECRET not in line
    assert "refused jwt=***" in line
    assert "ValueError: access_key=***" in line
    assert re.search(r"slots.{1,4}5", line)
    assert "/x" in line
    if format == "json":
        assert json.loads(line)["detail"] == {"pwd": "***", "slots": 5}
