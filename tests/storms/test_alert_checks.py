"""The check of the alert storm finds lost, repeated and reordered messages."""

import pytest

from forge_jobs.core.alert_rule import Condition
from forge_jobs.core.alerts import Episode
from rigs.storms.alerting import AlertStormOptions, check_messages
from rigs.storms.webhook_receiver import Received, Receiver

OPTIONS = AlertStormOptions(rounds=2, queues=1)
EPISODES = [
    Episode(
        id=name, rule="full", condition=Condition.BACKLOG, subject="full0", value=1, above=0,
        opened_at=1,
    )
    for name in ("e1", "e2")
]  # fmt: skip
GOOD = ["e1.opened", "e1.closed", "e2.opened", "e2.opened", "e2.closed"]


def faults(ids: list[str], episodes: list[Episode] = EPISODES, jobs: int = 4) -> str:
    requests = [Received("/", {"webhook-id": one}, b"{}") for one in ids]
    return "; ".join(check_messages(episodes, Receiver("", requests), jobs, OPTIONS))


def test_repeated_messages_are_dropped_by_their_id() -> None:
    assert faults(GOOD) == ""


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (faults(GOOD[:-1]), "no message e2.closed"),
        (faults([*GOOD, "e3.opened"]), "a message of no episode: e3.opened"),
        (faults(["e1.closed", *GOOD]), "e1 closed before it opened"),
        (faults(GOOD, jobs=5), "5 jobs for 2 episodes"),
        (faults(GOOD, [*EPISODES, EPISODES[0]]), "full0 had 3 episodes in 2 rounds"),
    ],
)
def test_each_fault_is_found(found: str, text: str) -> None:
    assert text in found
