"""Each check of the gateway storm finds its violation in made-up evidence."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from rigs.storms.gateway_checks import ChatKey, GatewayEvidence, StoredUpdate, check_gateway

Entry = dict[str, Any]
CHAT: ChatKey = ("echo", 7)


@dataclass
class Made:
    """Evidence in the making. Answer a is sent once; b twice, since its process died before it was
    marked; c was requested again after the answer to its first request was lost."""

    entries: list[Entry] = field(default_factory=list[Entry])
    got: list[str] = field(default_factory=lambda: ["a", "b", "b", "c", "c"])
    updates: list[StoredUpdate] = field(
        default_factory=lambda: [StoredUpdate("echo", number, "done") for number in (1, 2, 3)]
    )
    waiting: list[str] = field(default_factory=list[str])
    expired: list[str] = field(default_factory=list[str])
    unfinished: list[str] = field(default_factory=list[str])

    def note(self, op: str, at: float, pid: int, text: str) -> None:
        self.entries.append({"op": op, "at": at, "pid": pid, "label": f"echo/7/{text}"})

    def strike(self, at: float, pid: int) -> None:
        self.entries.append({"op": "killed", "at": at, "pid": pid, "step": "told"})

    def judged(self) -> dict[str, list[str]]:
        evidence = GatewayEvidence(
            entries=sorted(self.entries, key=lambda entry: entry["at"]),
            wanted={CHAT: ["a", "b", "c"]},
            got={CHAT: self.got},
            updates=self.updates,
            waiting=self.waiting,
            expired=self.expired,
            unfinished=self.unfinished,
        )
        return {name: found for name, found in check_gateway(evidence).findings.items() if found}


def good() -> Made:
    made = Made()
    for at, op in enumerate(("claimed", "sending", "finished")):
        made.note(op, 1 + at / 10, 1, "a")
    made.note("claimed", 2.0, 1, "b")
    made.note("sending", 2.1, 1, "b")
    made.strike(2.2, 1)
    for at, op in enumerate(("claimed", "sending", "finished")):
        made.note(op, 3 + at / 10, 2, "b")
    for at, op in enumerate(("claimed", "sending", "unsent", "claimed", "sending", "finished")):
        made.note(op, 4 + at / 10, 2, "c")
    return made


def test_a_valid_storm_has_no_findings() -> None:
    assert good().judged() == {}


def _lose_an_answer(made: Made) -> None:
    made.got.remove("a")


def _swap_two_answers(made: Made) -> None:
    made.got[:] = ["b", "b", "a", "c", "c"]


def _overtake_a_repetition(made: Made) -> None:
    made.got[:] = ["a", "b", "c", "b", "c"]


def _repeat_without_a_request(made: Made) -> None:
    made.got.insert(0, "a")


def _repeat_after_the_mark(made: Made) -> None:
    made.strike(5.0, 2)
    made.note("claimed", 6.0, 3, "a")
    made.note("sending", 6.1, 3, "a")
    made.got.insert(0, "a")


def _repeat_without_a_death(made: Made) -> None:
    made.entries[:] = [entry for entry in made.entries if entry["op"] != "killed"]


def _repeat_before_the_death(made: Made) -> None:
    for entry in made.entries:
        if entry["op"] == "killed":
            entry["at"] = 9.0


def _send_past_the_queue(made: Made) -> None:
    claim = next(entry for entry in made.entries if entry["op"] == "claimed")
    made.entries.remove(claim)


def _say_something_else(made: Made) -> None:
    for op in ("claimed", "sending"):
        made.note(op, 7.0, 2, "z")
    made.got.append("z")


def _store_twice(made: Made) -> None:
    made.updates.append(made.updates[0])


def _leave_at_telegram(made: Made) -> None:
    made.waiting.append("echo: 4")


def _let_expire(made: Made) -> None:
    made.expired.append("echo: 4")


def _leave_unended(made: Made) -> None:
    made.unfinished.append("send.echo is dead")


@pytest.mark.parametrize(
    ("violation", "check_name"),
    [
        (_lose_an_answer, "updates lost"),
        (_swap_two_answers, "answers out of order"),
        (_overtake_a_repetition, "answers out of order"),
        (_repeat_without_a_request, "undocumented repetitions"),
        (_repeat_after_the_mark, "undocumented repetitions"),
        (_repeat_without_a_death, "undocumented repetitions"),
        (_repeat_before_the_death, "undocumented repetitions"),
        (_send_past_the_queue, "undocumented repetitions"),
        (_say_something_else, "unexpected messages"),
        (_store_twice, "updates stored twice"),
        (_leave_at_telegram, "updates Telegram still has"),
        (_let_expire, "updates Telegram still has"),
        (_leave_unended, "jobs not finished"),
    ],
)
def test_each_violation_is_found(violation: Callable[[Made], None], check_name: str) -> None:
    made = good()
    violation(made)
    assert list(made.judged()) == [check_name]
