"""The judge of the gateway storm. Pure: what Telegram saw and what lives noted in, findings out.

The one repetition towards a user that is documented: the process died after it had begun to request
a message and before the database held it for sent. Whatever else comes twice is a finding.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rigs.storms.checks import Judgement

Entry = dict[str, Any]
# A chat of one bot.
Place = tuple[str, int]


@dataclass(frozen=True)
class StoredUpdate:
    """An update as the final database has it."""

    slug: str
    number: int
    status: str


@dataclass(frozen=True)
class GatewayEvidence:
    """``wanted`` are the texts each chat must get, in order; ``got`` those that Telegram was given.

    ``waiting`` and ``expired`` are updates that Telegram could not deliver. ``unended`` are jobs
    that have not come to their end.
    """

    entries: list[Entry]
    wanted: Mapping[Place, Sequence[str]]
    got: Mapping[Place, Sequence[str]]
    waiting: Sequence[str] = ()
    expired: Sequence[str] = ()
    updates: Sequence[StoredUpdate] = ()
    unended: Sequence[str] = ()
    sent: int = 0
    seconds: float = 0.0


@dataclass
class _Message:
    """The notes of all lives about one message."""

    requests: list[Entry] = field(default_factory=list[Entry])
    claims: list[Entry] = field(default_factory=list[Entry])
    marks: list[Entry] = field(default_factory=list[Entry])
    refusals: list[Entry] = field(default_factory=list[Entry])


_NOTES = {"sending": "requests", "claimed": "claims", "settled": "marks", "unsent": "refusals"}


def check_gateway(evidence: GatewayEvidence) -> Judgement:
    """Every check over one storm."""
    notes = _notes(evidence.entries)
    deaths = _deaths(evidence.entries)
    copies = Counter(
        f"{slug}/{chat}/{text}" for (slug, chat), texts in evidence.got.items() for text in texts
    )
    judgement = Judgement()
    for name, check in {
        "updates lost": _lost(evidence),
        "updates Telegram still has": iter([*evidence.waiting, *evidence.expired]),
        "updates stored twice": _stored_twice(evidence),
        "jobs not at their end": iter(evidence.unended),
        "answers out of order": _disordered(evidence),
        "messages nobody asked for": _unasked(evidence),
        "undocumented repetitions": _repeated(notes, deaths, copies),
    }.items():
        judgement.findings[name] = list(check)
    judgement.figures = _figures(evidence, copies)
    return judgement


def _notes(entries: list[Entry]) -> dict[str, _Message]:
    found: dict[str, _Message] = defaultdict(_Message)
    for entry in entries:
        if entry["op"] in _NOTES:
            getattr(found[entry["label"]], _NOTES[entry["op"]]).append(entry)
    return found


def _deaths(entries: list[Entry]) -> dict[int, float]:
    """When which process was killed, by itself at its step or from outside."""
    found = {entry["pid"]: entry["at"] for entry in entries if entry["op"] == "struck"}
    return found | {entry["victim"]: entry["at"] for entry in entries if entry["op"] == "kill"}


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


def _disordered(evidence: GatewayEvidence) -> Iterator[str]:
    """A repetition comes at once or not at all: nothing may overtake it."""
    for (slug, chat), texts in evidence.got.items():
        schemas = {text: at for at, text in enumerate(evidence.wanted.get((slug, chat), ()))}
        order = [schemas[text] for text in texts if text in schemas]
        for earlier, later in itertools.pairwise(order):
            if later < earlier:
                yield f"{slug}, chat {chat}: answer {later} came after answer {earlier}"


def _unasked(evidence: GatewayEvidence) -> Iterator[str]:
    for (slug, chat), texts in evidence.got.items():
        wanted = evidence.wanted.get((slug, chat), ())
        for text in texts:
            if text not in wanted:
                yield f"{slug}, chat {chat}: {text!r}"


def _repeated(
    notes: dict[str, _Message], deaths: dict[int, float], copies: Counter[str]
) -> Iterator[str]:
    for label in {**notes, **copies}:
        message = notes.get(label, _Message())
        if copies[label] > len(message.requests):
            yield f"{label} came {copies[label]} times after {len(message.requests)} requests"
        for request in message.requests:
            if not any(_is_before(claim, request) for claim in message.claims):
                yield f"{label} was sent although no send of it was stored"
        for earlier, later in itertools.pairwise(message.requests):
            why = _undocumented(message, earlier, later, deaths)
            if why:
                yield f"{label} was sent again {why}"


def _undocumented(
    message: _Message, earlier: Entry, later: Entry, deaths: dict[int, float]
) -> str | None:
    """Why nothing explains the later request of the two; None if something does."""
    if any(mark["at"] <= later["at"] for mark in message.marks):
        return "after it had been marked as sent"
    if any(_is_same(one, earlier) and one["at"] <= later["at"] for one in message.refusals):
        return None
    died_at = deaths.get(earlier["pid"])
    if died_at is None or not earlier["at"] <= died_at <= later["at"]:
        return "while the process that had sent it was alive"
    return None


def _is_before(claim: Entry, request: Entry) -> bool:
    return claim["pid"] == request["pid"] and claim["at"] <= request["at"]


def _is_same(one: Entry, request: Entry) -> bool:
    return one["pid"] == request["pid"] and one["at"] >= request["at"]


def _figures(evidence: GatewayEvidence, copies: Counter[str]) -> dict[str, object]:
    struck = Counter(entry["step"] for entry in evidence.entries if entry["op"] == "struck")
    outside = sum(entry["op"] == "kill" for entry in evidence.entries)
    return {
        "updates sent": evidence.sent,
        "updates stored": len(evidence.updates),
        "messages that arrived": sum(copies.values()),
        "documented repetitions": sum(count - 1 for count in copies.values()),
        "kills at a step": sum(struck.values()),
        "kills at no step": outside,
        "by step": ", ".join(f"{name} {count}" for name, count in sorted(struck.items())),
        "seconds": round(evidence.seconds),
    }
