"""Which failures are one group."""

import pytest

from forge_jobs.core.failures import MAX_MESSAGE_CHARS, group_of, normalised

TRACEBACK = """Traceback (most recent call last):
  File "{path}", line {line}, in send
    connect(host)
  File "/usr/lib/python3.12/site-packages/smtp.py", line 8, in connect
    raise {type}(host)
{type}: {message}"""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("no user 42", "no user <n>"),
        ("-3.2e-5 of [1, 2]", "<n> of [<n>, <n>]"),
        ("order ord_1234567 is late", "order <id> is late"),
        ("550e8400-e29b-41d4-a716-446655440000 gone", "<id> gone"),
        ("commit deadbeef01 and 01HZX3K9M2N4P5Q6R7S8T9V0WX", "commit <id> and <id>"),
        ("no route to 10.0.0.1:5432", "no route to <address>"),
        ("fe80:0:0:1:: is down", "<address> is down"),
        ("<object at 0x7f3a>", "<object at <address>>"),
        ("can't open 'a b' or \"c\"", "can't open <value> or <value>"),
        ("it's ann's", "it's ann's"),
        ("/srv/a/b.txt, ../c, C:\\d\\e and/or x", "<path>, <path>, <path> and/or x"),
        ("GET https://a.example/b?c=1 failed", "GET https://<url> failed"),
        ("ann.b+c@mail.example refused", "<email> refused"),
        ("since 2024-01-02T03:04:05.678Z", "since <time>"),
        ("two\n  lines", "two lines"),
        ("", ""),
    ],
)
def test_what_differs_between_failures_is_left_out(message: str, expected: str) -> None:
    assert normalised(message) == expected


def test_a_long_message_is_bounded() -> None:
    assert len(normalised("word " * 100_000)) == MAX_MESSAGE_CHARS
    for hostile in ("a" * 5_000, "1a" * 2_000, "/" * 5_000, "'" * 5_000, "a@" * 2_000, ":1" * 900):
        assert len(normalised(hostile)) <= MAX_MESSAGE_CHARS


def test_the_frame_is_that_of_the_application_without_its_line() -> None:
    first = _group("/srv/one/mail.py", 3, "no user 1")
    again = _group("/srv/two/mail.py", 9, "no user 22")
    assert first == again
    assert (first.type, first.message, first.frame) == (
        "KeyError",
        "no user <n>",
        "mail.py in send",
    )
    assert _group("/srv/one/post.py", 3, "no user 1").id != first.id


def test_a_type_is_that_of_the_exception() -> None:
    failed = group_of("HTTP: bad", TRACEBACK.format(path="a.py", line=1, type="Failed", message=""))
    assert (failed.type, failed.message) == ("", "HTTP: bad")
    assert group_of("HTTP: bad", None).type == ""
    assert group_of("shop.MailError: bad", None).type == ""
    assert group_of("MailError: bad", None).type == "MailError"
    assert group_of("KeyError", None).type == "KeyError"


def test_secrets_are_masked_before_they_are_stored() -> None:
    group = group_of("ValueError: token abc", None, lambda text: text.replace("abc", "***"))
    assert group.message == "token ***"


def _group(path: str, line: int, message: str):
    traceback = TRACEBACK.format(path=path, line=line, type="KeyError", message=message)
    return group_of(f"KeyError: {message}", traceback)
