"""Rules for names, public job ids, and slot shares."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.core import ids, names
from forge_jobs.core.errors import BadName
from forge_jobs.core.shares import split


@pytest.mark.parametrize("name", ["a", "mail", "Mail-2.x_y", "_a", "0", "a" * 63])
def test_good_queue_names(name: str) -> None:
    assert names.queue_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "-a", ".a", "a,b", "a b", "a/b", "ä", "a" * 64, "a\n", "a\0", "a'b", None, 5]
)
def test_L11_bad_queue_names_are_refused_everywhere(name: Any) -> None:
    with pytest.raises(BadName, match="queue"):
        names.queue_name(name)


@pytest.mark.parametrize("name", ["send", "mail.send:v2", "_x", "a" * 127])
def test_good_kinds(name: str) -> None:
    assert names.kind_name(name) == name


@pytest.mark.parametrize("name", ["", "2send", "a b", "a" * 128, "a;b", "a\n", "é", None])
def test_bad_kinds(name: Any) -> None:
    with pytest.raises(BadName, match="kind"):
        names.kind_name(name)


@pytest.mark.parametrize("key", ["a", "welcome:42", "ключ 🦊", "x" * 512])
def test_keys_are_almost_free_text(key: str) -> None:
    assert names.key_text("dedupe_key", key) == key


@pytest.mark.parametrize("key", ["", "x" * 513, "a\nb", "a\0b", "\ud800", 5, None])
def test_bad_keys_name_their_field(key: Any) -> None:
    with pytest.raises(BadName, match="dedupe_key"):
        names.key_text("dedupe_key", key)


def test_tags() -> None:
    assert names.tag_list(["b", "a", "b"]) == ("b", "a")
    for bad in ("vip", ["a,b"], [""], [f"t{n}" for n in range(33)]):
        with pytest.raises(BadName, match="tag"):
            names.tag_list(bad)


KEYS = st.integers(1, (1 << 63) - 1)
TAGS = st.integers(0, 0xFFFF)
TIMES = st.integers(0, 4_000_000_000 * 1_000_000)


@given(key=KEYS, at=TIMES, tag=TAGS)
def test_an_id_leads_back_to_its_row(key: int, at: int, tag: int) -> None:
    public = ids.job_id(key, at, tag)
    assert len(public) == 26
    assert ids.row_key(public, tag) == (key, at // 1_000)
    assert ids.row_key(public.lower(), tag) == (key, at // 1_000)
    assert ids.row_key(public, tag ^ 1) is None


@given(keys=st.lists(KEYS, max_size=5), first=KEYS, at=TIMES, tag=TAGS)
def test_ids_made_together_are_the_same(keys: list[int], first: int, at: int, tag: int) -> None:
    together = [*keys, *range(first, first + 40)]
    assert ids.job_ids(together, at, tag) == [ids.job_id(key, at, tag) for key in together]


@given(first=st.tuples(TIMES, KEYS), second=st.tuples(TIMES, KEYS), tag=TAGS)
def test_ids_sort_by_millisecond_then_key(
    first: tuple[int, int], second: tuple[int, int], tag: int
) -> None:
    def by_age(at: int, key: int) -> tuple[int, int]:
        return at // 1_000, key

    older, newer = sorted((first, second), key=lambda pair: by_age(*pair))
    assert ids.job_id(older[1], older[0], tag) <= ids.job_id(newer[1], newer[0], tag)


@given(st.text(max_size=30))
def test_no_text_breaks_the_decoder(text: str) -> None:
    number = ids.decode(text)
    if number is not None:
        assert ids.encode(number) == text.upper()


@pytest.mark.parametrize(
    "text", ["", "8" + "0" * 25, "I" * 26, "0" * 25, "0" * 27, "0" + "ß" * 25, "0" + "ſ" * 25]
)
def test_what_is_no_ulid(text: str) -> None:
    assert ids.decode(text) is None


@given(total=st.integers(-5, 1_000), hosts=st.sets(st.text(max_size=5), max_size=20))
def test_shares_add_up_and_differ_by_no_more_than_one(total: int, hosts: set[str]) -> None:
    parts = split(total, sorted(hosts, reverse=True))
    assert set(parts) == hosts
    if hosts:
        assert sum(parts.values()) == max(total, 0)
        assert max(parts.values()) - min(parts.values()) <= 1
        assert list(parts.values()) == sorted(parts.values(), reverse=True)
