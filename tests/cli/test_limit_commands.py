"""forge limits: what operators see and set."""

import logging

import pytest

from tests.cli.conftest import Here
from tests.ops.desk import Desk


def test_no_limits_yet(here: Here) -> None:
    here.fill(lambda desk: desk.some(1))
    assert "No rate limits yet" in here.forge("limits", "list").out
    assert here.forge("limits", "list", "--json").data == {"rate_limits": []}


def test_an_operator_sets_drains_and_sees(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "forge_jobs.audit")
    here.fill(lambda desk: desk.some(1))
    made = here.forge("limits", "set", "smtp", "50/m", "--json").data
    assert (made["scope"], made["rate"], made["burst"], made["available"]) == (
        "smtp", "50/m", 50, 50,
    )  # fmt: skip
    assert here.forge("limits", "set", "smtp", "--burst", "3", "--json").data["burst"] == 3
    assert here.forge("limits", "set", "smtp", "2/h", "--json").data["available"] == 2
    drained = here.forge("limits", "drain", "smtp", "--json").data
    assert drained["available"] == 0
    assert drained["next_in_s"] > 0
    listed = here.forge("limits", "list")
    assert max(map(len, listed.out.splitlines())) <= 80
    assert listed.out.splitlines()[1].split()[:3] == ["smtp", "2/h", "2"]
    actions = [record.action for record in caplog.records]  # type: ignore[attr-defined]
    assert actions == ["set limit"] * 3 + ["drain limit"]


def test_what_an_operator_set_is_not_overwritten_by_code(here: Here) -> None:
    async def ensure(desk: Desk) -> float:
        bucket = await desk.store.schedules.ensure_bucket("smtp", capacity=9, refill_per_s=9)
        return bucket.capacity

    here.fill(lambda desk: desk.some(1))
    here.forge("limits", "set", "smtp", "5/s")
    assert here.fill(ensure) == 5


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["set", "smtp", "often"], 2, "is not a rate"),
        (["set", "smtp"], 1, "say its rate"),
        (["set", "smtp", "5/s", "--burst", "0"], 2, "burst=0"),
        (["set", "", "5/s"], 2, "scope"),
        (["drain", "smtp"], 1, "there is no rate limit 'smtp'"),
    ],
)
def test_wrong_words_are_refused(here: Here, words: list[str], code: int, complaint: str) -> None:
    here.fill(lambda desk: desk.some(1))
    answer = here.forge("limits", *words)
    assert answer.code == code
    assert complaint in answer.err
