"""Commands that change jobs and queues: effects, confirmations, refusals."""

import io

import pytest

from forge_jobs.ops import queries
from tests.cli.conftest import InProcess
from tests.ops.harness import StoreHarness

UNKNOWN = "01JABCDEFGHJKMNPQRSTVWXYZ0"


def dead(count: int):
    async def work(harness: StoreHarness) -> list[str]:
        return await harness.dead_jobs(count)

    return work


def status(in_process: InProcess, job_id: str) -> str:
    async def work(harness: StoreHarness) -> str:
        return (await queries.get_record(harness.store, job_id)).status

    return in_process.fill(work)


def test_retry_by_id(in_process: InProcess) -> None:
    first, second = in_process.fill(dead(2))
    answer = in_process.forge("jobs", "retry", first)
    assert (answer.code, answer.out) == (0, "1 job back in line.\n")
    assert (status(in_process, first), status(in_process, second)) == ("pending", "dead")


def test_retry_of_an_unsuitable_job_prints_the_reason(in_process: InProcess) -> None:
    (waiting,) = in_process.fill(lambda harness: harness.enqueue(1))
    answer = in_process.forge("jobs", "retry", waiting)
    assert answer.code == 1
    assert "0 jobs back in line, 1 skipped." in answer.out
    assert "it is pending; retry applies to failed, dead, cancelled" in answer.err


def test_an_unknown_id_and_a_wrong_one(in_process: InProcess) -> None:
    missing = in_process.forge("jobs", "cancel", UNKNOWN)
    assert (missing.code, missing.out) == (1, "0 jobs cancelled, 1 not found.\n")
    assert in_process.forge("jobs", "cancel", "17").code == 2
    assert in_process.forge("jobs", "show", UNKNOWN).code == 1
    assert in_process.forge("jobs", "show", "17").code == 2


def test_a_filter_is_previewed_and_needs_confirmation(in_process: InProcess) -> None:
    ids = in_process.fill(dead(3))
    asked = in_process.forge("jobs", "retry", "--queue", "mail")
    assert asked.code == 2
    assert "Retry 3 jobs? Nothing was done: repeat with --yes" in asked.err
    assert status(in_process, ids[0]) == "dead"
    counted = in_process.forge("jobs", "retry", "--queue", "mail", "--dry-run", "--json")
    assert counted.data == {"action": "retry", "matching": 3, "more": False, "changed": 0}
    done = in_process.forge("jobs", "retry", "--queue", "mail", "--yes", "--json")
    assert done.data == {
        "action": "retry", "changed": 3, "requested": 0, "skipped": 0, "missing": 0,
    }  # fmt: skip
    nothing = in_process.forge("jobs", "retry", "--queue", "mail", "--yes")
    assert (nothing.code, nothing.out) == (0, "No jobs match.\n")


def test_a_dry_run_says_how_many_jobs_match(in_process: InProcess) -> None:
    in_process.fill(dead(1))
    assert in_process.forge("jobs", "retry", "--all", "--dry-run").out == "Retry: 1 job matches.\n"
    in_process.fill(dead(1))
    assert in_process.forge("jobs", "retry", "--all", "--dry-run").out == "Retry: 2 jobs match.\n"


def test_an_action_without_ids_or_filter_is_refused(in_process: InProcess) -> None:
    in_process.fill(dead(1))
    bare = in_process.forge("jobs", "delete", "--yes")
    assert bare.code == 2
    assert "or --all" in bare.err
    both = in_process.forge("jobs", "delete", UNKNOWN, "--queue", "mail")
    assert both.code == 2
    assert "not both" in both.err
    assert in_process.forge("jobs", "delete", "--all", "--yes").out == "1 job deleted.\n"


@pytest.mark.parametrize(
    ("action", "state"), [("retry", "done"), ("retry", "in_progress"), ("delete", "running")]
)
def test_A6_states_an_action_does_not_apply_to_are_refused(
    in_process: InProcess, action: str, state: str
) -> None:
    answer = in_process.forge("jobs", action, "--status", state, "--yes")
    assert answer.code == 2
    assert f"{action} does not apply to" in answer.err


def test_cancel_run_now_and_duplicate(in_process: InProcess) -> None:
    first, second = in_process.fill(lambda harness: harness.enqueue(2, delay_s=600))
    assert in_process.forge("jobs", "run-now", first).out == "1 job made due.\n"
    assert status(in_process, first) == "pending"
    assert in_process.forge("jobs", "cancel", second, "--json").data["changed"] == 1
    assert status(in_process, second) == "cancelled"
    copied = in_process.forge("jobs", "duplicate", second, "--json").data
    assert copied["changed"] == 1
    assert status(in_process, copied["ids"][0]) == "pending"


def test_older_and_newer_jobs(in_process: InProcess) -> None:
    in_process.fill(dead(2))
    for words, count in ((["--older-than", "1h"], 0), (["--newer-than", "1h"], 2)):
        counted = in_process.forge("jobs", "delete", *words, "--dry-run", "--json").data
        assert counted["matching"] == count
    wrong = in_process.forge("jobs", "delete", "--older-than", "soon")
    assert wrong.code == 2
    assert "--older-than" in wrong.err


def test_settings_of_a_queue(in_process: InProcess) -> None:
    in_process.fill(lambda harness: harness.store.queues.ensure("mail", slots=10))
    words = ["--workers", "3", "--retain-done", "2d", "--retain-dead", "forever"]
    data = in_process.forge("queues", "set", "mail", *words, "--backoff", "5s:10m", "--json").data
    assert (data["slots"], data["retain_done_s"], data["retain_dead_s"]) == (3, 172_800, None)
    assert (data["backoff_enabled"], data["backoff_base_s"], data["backoff_max_s"]) == (
        True,
        5,
        600,
    )
    assert (
        in_process.forge("queues", "set", "mail", "--backoff", "off", "--json").data["slots"] == 3
    )
    assert "3 in the cluster" in in_process.forge("queues", "set", "mail", "--backoff", "on").out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["mail"], "say what to set"),
        (["mail", "--backoff", "sometimes"], "--backoff 'sometimes'"),
        (["mail", "--backoff", "1h:1s"], "back"),
        (["mail", "--retain-done", "-1"], "--retain-done"),
        (["mail", "--workers", "-1"], "slots"),
        (["mail", "--workers", "many"], "--workers"),
        (["a b", "--workers", "1"], "queue 'a b'"),
    ],
)
def test_wrong_settings_name_the_field(
    in_process: InProcess, words: list[str], complaint: str
) -> None:
    in_process.fill(lambda harness: harness.store.queues.ensure("mail", slots=10))
    answer = in_process.forge("queues", "set", *words)
    assert answer.code == 2
    assert complaint in answer.err
    assert len(answer.err.strip().splitlines()) == 1


def test_pause_resume_unthrottle(in_process: InProcess) -> None:
    in_process.fill(lambda harness: harness.store.queues.ensure("mail", slots=10))
    assert in_process.forge("queues", "pause", "mail", "--json").data["paused"] is True
    assert in_process.forge("queues", "resume", "mail", "--json").data["paused"] is False
    assert (
        in_process.forge("queues", "unthrottle", "mail", "--json").data["throttled_until"] is None
    )
    unknown = in_process.forge("queues", "pause", "mial")
    assert unknown.code == 1
    assert "there is no queue 'mial'" in unknown.err
    assert in_process.forge("queues", "set", "fresh", "--create", "--json").data["slots"] == 10


def test_enqueue(in_process: InProcess) -> None:
    words = ["--queue", "mail", "--priority", "-2", "--max-attempts", "3", "--tag", "vip"]
    answer = in_process.forge("enqueue", "send", '{"to": "a@b.c"}', *words)
    assert answer.code == 0, answer.err
    job = in_process.forge("jobs", "show", answer.out.strip(), "--json").data
    assert (job["kind"], job["queue"], job["payload"]) == ("send", "mail", {"to": "a@b.c"})
    assert (job["priority"], job["max_attempts"], job["tags"]) == (-2, 3, ["vip"])
    assert job["status"] == "pending"


def test_arguments_may_come_from_stdin(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"text": "' + "x" * 200_000 + '"}'))
    job_id = in_process.forge("enqueue", "send", "-").out.strip()
    payload = in_process.forge("jobs", "show", job_id, "--json").data["payload"]
    assert len(payload["text"]) == 200_000
    monkeypatch.setattr("sys.stdin", io.StringIO('{"text": "' + "x" * 2_000_000 + '"}'))
    large = in_process.forge("enqueue", "send", "-")
    assert large.code == 2
    assert "the limit is 1,048,576" in large.err


def test_a_kind_goes_to_its_published_queue_or_the_default(in_process: InProcess) -> None:
    in_process.fill(lambda harness: harness.store.queues.publish({"send": "mail"}))
    for kind, queue in (("send", "mail"), ("unheard_of", "default")):
        job_id = in_process.forge("enqueue", kind, "--force").out.strip()
        assert in_process.forge("jobs", "show", job_id, "--json").data["queue"] == queue


def test_enqueue_for_later_and_only_once(in_process: InProcess) -> None:
    words = ["enqueue", "send", "--queue", "mail", "--delay", "10m", "--dedupe-key", "one"]
    first, second = in_process.forge(*words, "--json").data, in_process.forge(*words, "--json").data
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert first["id"] == second["id"]
    assert status(in_process, first["id"]) == "scheduled"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["send", "{to: 1}", "--queue", "mail"], "not valid JSON"),
        (["send", "[1]", "--queue", "mail"], "must be an object"),
        (["send", "--queue", "a b"], "queue 'a b'"),
        (["send me", "--queue", "mail"], "kind 'send me'"),
        (["send", "--queue", "mail", "--delay", "-5"], "delay"),
        (["send", "--queue", "mail", "--delay", "later"], "delay"),
        (["send", "--queue", "mail", "--max-attempts", "0"], "max_attempts"),
    ],
)
def test_a_wrong_enqueue_names_the_field(
    in_process: InProcess, words: list[str], complaint: str
) -> None:
    answer = in_process.forge("enqueue", *words)
    assert answer.code == 2
    assert answer.out == ""
    assert complaint in answer.err
    assert len(answer.err.strip().splitlines()) == 1
