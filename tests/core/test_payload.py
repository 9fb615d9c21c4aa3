"""JSON payloads: values come back unchanged, or are refused with a reason."""

import dataclasses
import json
import math
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.core import dead_letter, payload
from forge_jobs.core.errors import BadPayload, PayloadTooLarge
from forge_jobs.core.job import Successor

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(VALUES)
def test_what_goes_in_comes_back(value: Any) -> None:
    data = payload.encode(value)
    assert payload.decode(data) == value
    assert json.loads(data) == value


@dataclasses.dataclass
class Point:
    x: int


class Location(msgspec.Struct):
    name: str


class Model:
    """Has the interface of a pydantic model."""

    def model_dump(self, mode: str) -> dict[str, str]:
        return {"mode": mode}


def test_rich_values_have_a_json_form() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    value = {"a": Point(1), "b": Location("x"), "c": Model(), "d": moment, "e": date(2026, 1, 2)}
    assert json.loads(payload.encode(value)) == {
        "a": {"x": 1},
        "b": {"name": "x"},
        "c": {"mode": "json"},
        "d": "2026-01-02T00:00:00Z",
        "e": "2026-01-02",
    }


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"a": object()}, "object"),
        ({"a": math.nan}, "NaN"),
        ({"a": [None, math.inf]}, "infinity"),
        ({"a": "x\0y"}, "NUL"),
        ({"x\0": 1}, "NUL"),
        ({"a": "\ud800"}, "JSON"),
        (_nested(65), "nested"),
        (_endless(), "JSON"),
        ({"a": {1, 2}.__iter__()}, "iterator"),
    ],
    ids=["object", "nan", "infinity", "nul", "nul in a name", "surrogate", "deep", "endless", "it"],
)
def test_values_that_cannot_be_stored_are_refused(value: Any, reason: str) -> None:
    with pytest.raises(BadPayload, match=reason):
        payload.encode(value, what="payload")


def test_unusual_but_valid_values_are_accepted() -> None:
    for value in ({"a": None, "b": "NaN"}, {"a": "\\u0000"}, _nested(64), {"a": "[" * 100}):
        assert payload.decode(payload.encode(value)) == value


def test_the_limit_names_sizes_and_the_remedy() -> None:
    with pytest.raises(PayloadTooLarge, match="payload_limit") as caught:
        payload.encode("x" * 100, limit=50)
    assert (caught.value.size, caught.value.limit) == (102, 50)
    assert payload.encode("x" * 48, limit=50)


def test_the_remedy_names_payload_limit_only_where_it_helps() -> None:
    with pytest.raises(PayloadTooLarge, match="store the data elsewhere") as caught:
        payload.encode("x" * 100, limit=50, what="result", fixed_limit=True)
    assert "payload_limit" not in str(caught.value)


def test_bytes_count_not_characters() -> None:
    with pytest.raises(PayloadTooLarge):
        payload.encode("é" * 30, limit=50)


@pytest.mark.parametrize("text", ["", "{", '{"a":}', "nul", b"\xff\xfe", "[" * 100_000])
def test_bad_json_text_is_refused_with_a_position(text: str | bytes) -> None:
    with pytest.raises(BadPayload, match="not valid JSON"):
        payload.decode_text(text)


def test_a_dead_letter_keeps_the_payload_byte_for_byte() -> None:
    original = '{ "a" : 1.0,"b":"é\\u00e9","n":12345678901234567890123 }'.encode()
    letter = dead_letter.payload(
        job_id="01ARZ3NDEKTSV4RRFFQ69G5FAV",
        kind="send",
        queue="mail",
        attempts=5,
        error='it said "no"',
        payload=original,
        enqueued_at=1,
        died_at=2,
    )
    assert original in letter
    plain = json.loads(letter)["job"]
    assert plain["payload"] == json.loads(original)
    assert (plain["error"], plain["attempts"], plain["died_at"]) == ('it said "no"', 5, 2)
    typed = msgspec.json.decode(letter, type=dict[str, dead_letter.DeadJob])["job"]
    assert (typed.kind, typed.enqueued_at) == ("send", 1)
    job = dead_letter.successor(Successor("tell", "ops", 2), letter, parent="01J", trace="t")
    assert (job.kind, job.queue, job.max_attempts, job.trace) == ("tell", "ops", 2, "t")
    assert job.payload == letter
