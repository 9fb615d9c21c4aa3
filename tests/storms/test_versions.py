"""The check of the versions storm finds a job that was handed on too slowly."""

from typing import Any

from rigs.storms.checks import Evidence
from rigs.storms.versions import HANDED_ON_S, slow_starts


def test_u4_only_late_first_starts_are_found() -> None:
    entries: list[dict[str, Any]] = []
    for name, starts in {"a": [1.0, 60.0], "b": [HANDED_ON_S + 1], "c": []}.items():
        entries.append({"op": "ok", "at": 0.5, "names": [name]})
        entries += [{"op": "start", "at": at, "name": name} for at in starts]
    found = list(slow_starts(Evidence(entries, [], 0, lease_s=1.0)))
    assert [text.split()[0] for text in found] == ["b"]
