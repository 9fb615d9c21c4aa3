"""``forge errors``: groups of failures, their jobs, refusals."""

from typing import Any

import pytest

from forge_jobs.core.status import JobStatus
from tests.cli.conftest import InProcess
from tests.ops.harness import StoreHarness

TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/mail.py", line 12, in send
    raise KeyError(name)
KeyError: 'x'"""


async def failures(harness: StoreHarness) -> None:
    """Three dead jobs of two groups, the first with a traceback."""
    await harness.enqueue(3)
    await harness.register_worker("mail")
    messages = ("KeyError: 'x'", "KeyError: 'y'", "no route")
    for job, message in zip(await harness.claim("mail", 3), messages, strict=True):
        await harness.kill(job, message, TRACEBACK if message.startswith("Key") else None)


def listed(in_process: InProcess, *words: str) -> list[dict[str, Any]]:
    return in_process.forge("errors", "list", "--json", *words).data["groups"]


def test_groups_are_listed_and_shown(in_process: InProcess) -> None:
    in_process.fill(failures)
    groups = {group["title"]: group for group in listed(in_process)}
    assert {title: group["count"] for title, group in groups.items()} == {
        "KeyError: <value>": 2, "no route": 1,
    }  # fmt: skip
    table = in_process.forge("errors", "list", "--sort", "count")
    assert table.out.splitlines()[1].split()[0] == groups["KeyError: <value>"]["id"]
    assert max(map(len, table.out.splitlines())) <= 80
    shown = in_process.forge("errors", "show", groups["KeyError: <value>"]["id"])
    assert "mail.py in send" in shown.out
    assert 'File "/srv/shop/mail.py", line 12, in send' in shown.out
    assert "2 within 24h" in shown.out


def test_pages_filters_and_an_empty_list(in_process: InProcess) -> None:
    in_process.fill(lambda harness: harness.enqueue(1))
    assert "No failure within 24h" in in_process.forge("errors", "list").out
    in_process.fill(failures)
    first = in_process.forge("errors", "list", "--limit", "1", "--sort", "count", "--json").data
    assert (first["groups_in_all"], first["failures"]) == (2, 3)
    [rest] = listed(in_process, "--sort", "count", "--after", first["next"])
    assert [group["title"] for group in (*first["groups"], rest)] == [
        "KeyError: <value>", "no route",
    ]  # fmt: skip
    assert len(listed(in_process, "--kind", first["groups"][0]["kinds"][0]["value"])) == 2
    assert listed(in_process, "--queue", "nowhere") == []
    assert listed(in_process, "--state", "resolved") == []


def test_a_group_is_resolved_and_reopened(in_process: InProcess) -> None:
    in_process.fill(failures)
    group = listed(in_process)[0]["id"]
    assert "is resolved" in in_process.forge("errors", "resolve", group).out
    [resolved] = listed(in_process, "--state", "resolved")
    assert (resolved["id"], resolved["state"]) == (group, "resolved")
    assert resolved["resolved_by"].startswith("cli:")
    assert in_process.forge("errors", "reopen", group, "--json").data["state"] == "open"
    audit = in_process.forge("audit", "--json").data["entries"]
    assert [entry["action"] for entry in audit[:2]] == ["reopen error", "resolve error"]


def test_the_jobs_of_a_group_are_retried_after_a_preview(in_process: InProcess) -> None:
    in_process.fill(failures)
    [group] = [one["id"] for one in listed(in_process) if one["count"] == 2]
    assert "2 jobs match" in in_process.forge("errors", "retry", group, "--dry-run").out
    refused = in_process.forge("errors", "retry", group)
    assert (refused.code, "repeat with --yes" in refused.err) == (2, True)
    assert in_process.forge("errors", "retry", group, "--yes", "--json").data["changed"] == 2
    jobs = in_process.forge("jobs", "list", "--json").data["jobs"]
    assert sorted(job["status"] for job in jobs) == [
        JobStatus.DEAD, JobStatus.PENDING, JobStatus.PENDING,
    ]  # fmt: skip
    assert in_process.forge("errors", "cancel", group, "--yes", "--json").data["changed"] == 2
    # What somebody has cancelled stays so.
    assert "No jobs match" in in_process.forge("errors", "retry", group, "--yes").out


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["show", "nope"], 1, "there is no error group 'nope'"),
        (["retry", "nope", "--yes"], 1, "there is no error group 'nope'"),
        (["resolve", "nope"], 1, "forge errors list"),
        (["list", "--state", "bad"], 2, "open, resolved, returned"),
        (["list", "--sort", "age"], 2, "last_seen, count"),
        (["list", "--since", "30d"], 2, "at most 14 days"),
        (["list", "--limit", "0"], 2, "between 1 and 1,000"),
        (["list", "--after", "x"], 2, "begin without one"),
    ],
)
def test_refusals_say_what_to_do(
    in_process: InProcess, words: list[str], code: int, complaint: str
) -> None:
    in_process.fill(failures)
    result = in_process.forge("errors", *words)
    assert (result.code, complaint in result.err) == (code, True), result.err
