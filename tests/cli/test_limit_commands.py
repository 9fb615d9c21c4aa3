"""``forge limits``: output, changes, refusals."""

import logging

import pytest

from forge_jobs.core.decide import decide
from forge_jobs.core.job import NewJob
from forge_jobs.core.limits import Declared
from forge_jobs.core.outcome import Throttled
from tests.cli.conftest import InProcess
from tests.ops.harness import StoreHarness


def test_no_limits_yet(in_process: InProcess) -> None:
    in_process.fill(lambda harness: harness.enqueue(1))
    assert "No rate limits yet" in in_process.forge("limits", "list").out
    nothing = {"rate_limits": [], "limits": [], "scopes": []}
    assert in_process.forge("limits", "list", "--json").data == nothing


def test_an_operator_sets_drains_and_sees(
    in_process: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forge_jobs.audit")
    in_process.fill(lambda harness: harness.enqueue(1))
    made = in_process.forge("limits", "set", "smtp", "50/m", "--json").data
    assert (made["scope"], made["rate"], made["burst"], made["available"]) == (
        "smtp", "50/m", 50, 50,
    )  # fmt: skip
    assert in_process.forge("limits", "set", "smtp", "--burst", "3", "--json").data["burst"] == 3
    assert in_process.forge("limits", "set", "smtp", "2/h", "--json").data["available"] == 2
    drained = in_process.forge("limits", "drain", "smtp", "--json").data
    assert drained["available"] == 0
    assert drained["next_in_s"] > 0
    listed = in_process.forge("limits", "list")
    assert max(map(len, listed.out.splitlines())) <= 80
    assert listed.out.splitlines()[1].split()[:3] == ["smtp", "2/h", "2"]
    actions = [record.action for record in caplog.records]  # type: ignore[attr-defined]
    assert actions == ["set limit"] * 3 + ["drain limit"]


def test_code_does_not_overwrite_an_operators_limit(in_process: InProcess) -> None:
    async def ensure(harness: StoreHarness) -> float:
        bucket = await harness.store.token_buckets.ensure("smtp", capacity=9, refill_per_s=9)
        return bucket.capacity

    in_process.fill(lambda harness: harness.enqueue(1))
    in_process.forge("limits", "set", "smtp", "5/s")
    assert in_process.fill(ensure) == 5


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
def test_invalid_rate_limits_are_refused(
    in_process: InProcess, words: list[str], code: int, complaint: str
) -> None:
    in_process.fill(lambda harness: harness.enqueue(1))
    answer = in_process.forge("limits", *words)
    assert answer.code == code
    assert complaint in answer.err


def test_an_operator_limits_a_task_and_opens_a_scope(in_process: InProcess) -> None:
    async def throttle(harness: StoreHarness) -> None:
        declared = Declared(name="task:send", concurrency=9, scopes=("smtp",))
        await harness.store.limits.publish([declared])
        await harness.store.queues.publish({"send": "mail"})
        await harness.enqueue_jobs(NewJob(kind="send", queue="mail"))
        await harness.register_worker("mail")
        (claimed,) = await harness.claim()
        told = Throttled(retry_after=600, scope="smtp")
        await harness._exchange(finish=[decide(claimed, told, now=harness.clock.now())])

    in_process.fill(throttle)
    made = in_process.forge(
        "limits", "set", "task:send", "50/m", "--concurrency", "3", "--json"
    ).data
    assert (made["concurrency"], made["rate"], made["by_operator"]) == (3, "50/m", True)
    listed = in_process.forge("limits", "list")
    assert "closed until" in listed.out
    assert max(map(len, listed.out.splitlines())) <= 80
    assert "scope 'smtp' is closed" in in_process.forge("queues", "list").out
    assert in_process.forge("limits", "list", "--json").data["scopes"][0]["closed_until"]
    in_process.forge("limits", "clear", "smtp")
    assert in_process.forge("limits", "list", "--json").data["scopes"][0]["closed_until"] is None
    in_process.forge("limits", "reset", "task:send")
    assert in_process.forge("limits", "list", "--json").data["limits"][0]["by_operator"] is False
    lifted = in_process.forge("limits", "set", "task:send", "--lift", "--json").data
    assert (lifted["concurrency"], lifted["rate"]) == (None, None)


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["set", "task:send"], 2, "say what to set"),
        (["set", "smtp", "5/s", "--concurrency", "2"], 2, "are for task:KIND"),
        (["set", "task:a b", "5/s"], 2, "kind"),
        (["reset", "task:send"], 1, "there is no limit"),
        (["clear", "smtp"], 1, "no task declares the scope"),
    ],
)
def test_invalid_limits_are_refused(
    in_process: InProcess, words: list[str], code: int, complaint: str
) -> None:
    in_process.fill(lambda harness: harness.enqueue(1))
    answer = in_process.forge("limits", *words)
    assert answer.code == code
    assert complaint in answer.err
