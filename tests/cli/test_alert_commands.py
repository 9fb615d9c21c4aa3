"""``forge alerts``: rules, episodes, the test message, refusals."""

import pytest

from forge_jobs.core.alert_values import ALERT_KIND
from tests.cli.conftest import InProcess

URL = "https://hooks.example/T0/secret-path"


def test_a_rule_is_added_changed_tested_and_removed(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_process.fill(lambda harness: harness.enqueue(1))
    monkeypatch.setenv("HOOK_SECRET", "whsec_c2VjcmV0LXNlY3JldA==")
    assert "No alert rules yet" in in_process.forge("alerts", "list").out
    made = in_process.forge(
        "alerts", "add", "slow", "longest_wait", "--above", "5m", "--for", "30s",
        "--webhook", URL, "--secret-env", "HOOK_SECRET", "--quiet", "sat,sun 00:00-24:00", "--json",
    ).data  # fmt: skip
    assert (made["above"], made["below"], made["for_s"]) == (300, 240, 30)
    assert (made["url"], made["signed"], made["state"]) == ("https://hooks.example/…", True, "ok")
    changed = in_process.forge("alerts", "edit", "slow", "--above", "10m", "--off", "--json").data
    assert (changed["above"], changed["below"], changed["state"]) == (600, 480, "off")
    listed = in_process.forge("alerts", "list")
    assert listed.out.splitlines()[1].split()[:3] == ["slow", "longest_wait", "600"]
    assert max(map(len, listed.out.splitlines())) <= 80
    job_id = in_process.forge("alerts", "test", "slow", "--json").data["job_id"]
    job = in_process.forge("jobs", "show", job_id, "--json").data
    assert (job["kind"], job["payload"]["phase"]) == (ALERT_KIND, "test")
    assert in_process.forge("alerts", "episodes", "--json").data == []
    assert "removed" in in_process.forge("alerts", "remove", "slow").out
    assert in_process.forge("alerts", "list", "--json").data == []


def test_the_audit_holds_no_address_and_no_secret(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_process.fill(lambda harness: harness.enqueue(1))
    monkeypatch.setenv("HOOK_SECRET", "whsec_c2VjcmV0LXNlY3JldA==")
    add = ["alerts", "add", "full", "backlog", "--webhook", URL, "--secret-env", "HOOK_SECRET"]
    in_process.forge(*add)
    in_process.forge("alerts", "edit", "full", "--above", "9")
    audit = in_process.forge("audit", "--json").out
    assert "edit alert" in audit
    assert "secret-path" not in audit
    assert "whsec" not in audit


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["add", "a", "sad"], 2, "dead_rate, longest_wait"),
        (["add", "a b", "backlog"], 2, "use 1 to 63 letters"),
        (["add", "a", "backlog", "--secret-env", "NOT_SET"], 2, "NOT_SET"),
        (["add", "a", "backlog", "--quiet", "always"], 2, "22:00-07:00"),
        (["edit", "a", "--above", "1"], 1, "there is no alert rule 'a'"),
        (["edit", "a"], 2, "say what to change"),
        (["remove", "a"], 1, "there is no alert rule 'a'"),
        (["test", "a"], 1, "there is no alert rule 'a'"),
    ],
)
def test_refusals(in_process: InProcess, words: list[str], code: int, complaint: str) -> None:
    in_process.fill(lambda harness: harness.enqueue(1))
    answer = in_process.forge("alerts", *words)
    assert answer.code == code
    assert complaint in answer.err
