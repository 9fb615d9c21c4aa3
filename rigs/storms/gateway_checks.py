"""The checks of the gateway storm. Pure functions: Telegram's state and the histories in, findings
out.

One repetition of a message is documented: the process was killed after it had started the request
and before the finish of the send job was committed. Any other repetition is a finding.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rigs.storms.checks import CheckReport

Entry = dict[str, Any]
# A chat of one bot.
ChatKey = tuple[str, int]


@dataclass(frozen=True)
class StoredUpdate:
    """An update as the final database has it."""

    slug: str
    number: int
    status: str


@dataclass(frozen=True)
class GatewayEvidence:
    """``wanted`` are the texts that each chat must get, in order; ``got`` those that Telegram got.

    ``waiting`` and ``expired`` are updates that Telegram could not deliver. ``unfinished`` are jobs
    in an unexpected state at the end.
    """

    entries: list[Entry]
    wanted: Mapping[ChatKey, Sequence[str]]
    got: Mapping[ChatKey, Sequence[str]]
    waiting: Sequence[str] = ()
    expired: Sequence[str] = ()
    updates: Sequence[StoredUpdate] = ()
    unfinished: Sequence[str] = ()
    sent: int = 0
    seconds: float = 0.0


@dataclass
class _MessageLog:
    """The history entries of all gateway processes about one message."""

    requests: list[Entry] = field(default_factory=list[Entry])
    claims: list[Entry] = field(default_factory=list[Entry])
    marks: list[Entry] = field(default_factory=list[Entry])
    refusals: list[Entry] = field(default_factory=list[Entry])


_OPERATIONS = {
    "sending": "requests",
    "claimed": "claims",
    "finished": "marks",
    "unsent": "refusals",
}


def check_gateway(evidence: GatewayEvidence) -> CheckReport:
    """Every check over one storm."""
    messages = _messages(evidence.entries)
    kills = _deaths(evidence.entries)
    copies = Counter(
        f"{slug}/{chat}/{text}" for (slug, chat), texts in evidence.got.items() for text in texts
    )
    report = CheckReport()
    for name, check in {
        "nothing was done": _idle(evidence, copies),
        "updates lost": _lost(evidence),
        "updates Telegram still has": iter([*evidence.waiting, *evidence.expired]),
        "updates stored twice": _stored_twice(evidence),
        "jobs not finished": iter(evidence.unfinished),
        "answers out of order": _out_of_order(evidence),
        "unexpected messages": _unexpected(evidence),
        "undocumented repetitions": _repeated(messages, kills, copies),
    }.items():
        report.findings[name] = list(check)
    report.figures = _figures(evidence, copies)
    return report


def _messages(entries: list[Entry]) -> dict[str, _MessageLog]:
    found: dict[str, _MessageLog] = defaultdict(_MessageLog)
    for entry in entries:
        if entry["op"] in _OPERATIONS:
            getattr(found[entry["label"]], _OPERATIONS[entry["op"]]).append(entry)
    return found


def _deaths(entries: list[Entry]) -> dict[int, float]:
    """When which process was killed, by itself at its step or from outside."""
    found = {entry["pid"]: entry["at"] for entry in entries if entry["op"] == "killed"}
    return found | {entry["victim"]: entry["at"] for entry in entries if entry["op"] == "kill"}


def _idle(evidence: GatewayEvidence, copies: Counter[str]) -> Iterator[str]:
    """A storm without updates or answers would pass every other check, and proves nothing."""
    if not any(evidence.wanted.values()):
        yield "no update was sent that has an answer"
    if not copies:
        yield "Telegram got no message"


def _lost(evidence: GatewayEvidence) -> Iterator[str]:
    for (slug, chat), texts in evidence.wanted.items():
        got = set(evidence.got.get((slug, chat), ()))
        for text in texts:
            if text not in got:
                yield f"{slug}, chat {chat}: no answer {text!r}"


def _stored_twice(evidence: GatewayEvidence) -> Iterator[str]:
    for (slug, number), copies in Counter(
        (one.slug, one.number) for one in evidence.updates
    ).items():
        if copies > 1:
            yield f"{slug}: update {number} is stored {copies} times"


def _out_of_order(evidence: GatewayEvidence) -> Iterator[str]:
    """A repetition is sent immediately: no later message may be sent before it."""
    for (slug, chat), texts in evidence.got.items():
        positions = {text: at for at, text in enumerate(evidence.wanted.get((slug, chat), ()))}
        order = [positions[text] for text in texts if text in positions]
        for earlier, later in itertools.pairwise(order):
            if later < earlier:
                yield f"{slug}, chat {chat}: answer {later} came after answer {earlier}"


def _unexpected(evidence: GatewayEvidence) -> Iterator[str]:
    for (slug, chat), texts in evidence.got.items():
        wanted = evidence.wanted.get((slug, chat), ())
        for text in texts:
            if text not in wanted:
                yield f"{slug}, chat {chat}: {text!r}"


def _repeated(
    messages: dict[str, _MessageLog], kills: dict[int, float], copies: Counter[str]
) -> Iterator[str]:
    for label in {**messages, **copies}:
        message = messages.get(label, _MessageLog())
        if copies[label] > len(message.requests):
            yield f"{label} came {copies[label]} times after {len(message.requests)} requests"
        for request in message.requests:
            if not any(_is_before(claim, request) for claim in message.claims):
                yield f"{label} was sent although no send of it was stored"
        for earlier, later in itertools.pairwise(message.requests):
            why = _undocumented(message, earlier, later, kills)
            if why:
                yield f"{label} was sent again {why}"


def _undocumented(
    message: _MessageLog, earlier: Entry, later: Entry, kills: dict[int, float]
) -> str | None:
    """Why nothing explains the later request of the two; None if something does."""
    if any(mark["at"] <= later["at"] for mark in message.marks):
        return "after it had been marked as sent"
    if any(_is_same(one, earlier) and one["at"] <= later["at"] for one in message.refusals):
        return None
    died_at = kills.get(earlier["pid"])
    if died_at is None or not earlier["at"] <= died_at <= later["at"]:
        return "while the process that had sent it was alive"
    return None


def _is_before(claim: Entry, request: Entry) -> bool:
    return claim["pid"] == request["pid"] and claim["at"] <= request["at"]


def _is_same(one: Entry, request: Entry) -> bool:
    return one["pid"] == request["pid"] and one["at"] >= request["at"]


def _figures(evidence: GatewayEvidence, copies: Counter[str]) -> dict[str, object]:
    wrapper = Counter(entry["step"] for entry in evidence.entries if entry["op"] == "killed")
    outside = sum(entry["op"] == "kill" for entry in evidence.entries)
    return {
        "updates sent": evidence.sent,
        "updates stored": len(evidence.updates),
        "messages that arrived": sum(copies.values()),
        "documented repetitions": sum(count - 1 for count in copies.values()),
        "kills at a step": sum(wrapper.values()),
        "kills at no step": outside,
        "by step": ", ".join(f"{name} {count}" for name, count in sorted(wrapper.items())),
        "seconds": round(evidence.seconds),
    }
