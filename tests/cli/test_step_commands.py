"""Steps, events and waits from the command line."""

import json

import pytest

from forge_jobs.core.ids import decode
from tests.cli.conftest import InProcess
from tests.ops.order_workflow import order_shop


def waiting_order(in_process: InProcess, number: int = 7) -> str:
    forge = order_shop(in_process.url)
    job = forge.enqueue("order", {"number": number})
    forge.drain().run()
    forge.close()
    return job.id


def drain(in_process: InProcess, parts: tuple[str, ...] = ("box", "label")) -> None:
    forge = order_shop(in_process.url, parts=parts)
    forge.drain().run()
    forge.close()


def test_an_order_is_found_waiting_and_sent_on(on_file: InProcess) -> None:
    job_id = waiting_order(on_file, 4711)
    assert job_id in on_file.forge("jobs", "list", "--status", "suspended").out
    shown = on_file.forge("jobs", "show", job_id).out
    assert "forge send paid --key 4711" in shown
    waiting = on_file.forge("events", "waiting", "--name", "paid")
    assert job_id in waiting.out
    assert "4711" in waiting.out
    sent = on_file.forge("send", "paid", '{"cents": 1200, "token": "s3cret"}', "--key", "4711")
    assert sent.out == "Sent paid: 1 job resumed.\n"
    assert "s3cret" not in on_file.forge("events", "list").out
    assert on_file.forge("events", "list", "--json").data["events"][0]["payload"]["cents"] == 1200
    drain(on_file)
    assert on_file.forge("jobs", "show", job_id, "--json").data["status"] == "done"
    assert on_file.forge("events", "waiting").out == "No job waits for such an event.\n"


def test_steps_are_a_table_of_80_columns(on_file: InProcess) -> None:
    job_id = waiting_order(on_file)
    table = on_file.forge("jobs", "steps", job_id)
    assert table.code == 0, table.err
    assert max(map(len, table.out.splitlines())) <= 80
    lines = [line.split()[:3] for line in table.out.splitlines()]
    assert lines[0] == ["STEP", "KIND", "STATE"]
    assert ["charge", "step", "stored"] in lines
    assert ["wait:paid", "event", "open"] in lines
    valued = on_file.forge("jobs", "steps", job_id, "--values").out
    assert "ch_7" in valued
    assert "hunter2" not in valued
    assert "value" not in on_file.forge("jobs", "steps", job_id, "--json").data["steps"][0]
    document = on_file.forge("jobs", "steps", job_id, "--json", "--values").data
    assert document["steps"][0]["value"]["password"] == "***"


def test_steps_that_the_last_version_does_not_call_are_marked(on_file: InProcess) -> None:
    job_id = waiting_order(on_file)
    on_file.forge("send", "paid", "{}", "--key", "7")
    drain(on_file, parts=("box",))
    table = on_file.forge("jobs", "steps", job_id).out
    assert max(map(len, table.splitlines())) <= 80
    assert ["fetch[label]", "step", "unused"] in [line.split()[:3] for line in table.splitlines()]
    assert "\n1 step unused: the run that ended the job did not call it.\n" in table
    document = on_file.forge("jobs", "steps", job_id, "--json").data
    assert document["unused"] == 1
    assert [step["name"] for step in document["steps"] if step["unused"]] == ["fetch[label]"]


def test_lists_of_events_and_waits_fit_80_columns(on_file: InProcess) -> None:
    waiting_order(on_file, 10**15)
    on_file.forge("send", "a_name_of_an_event_that_is_rather_long", "--key", "k" * 200)
    on_file.forge("send", "b", '"some words in a row, more than fit"', "--key", "with spaces " * 9)
    for command in (["events", "list"], ["events", "waiting"], ["queues", "list"], ["stats"]):
        table = on_file.forge(*command)
        assert table.code == 0, table.err
        assert max(map(len, table.out.splitlines())) <= 80
        assert isinstance(on_file.forge(*command, "--json").data, dict)
    # Each event has one line.
    assert len(on_file.forge("events", "list").out.splitlines()) == 3
    assert "SUSP" in on_file.forge("queues", "list").out


def test_a_dead_job_is_retried_from_a_step(on_file: InProcess) -> None:
    job_id = waiting_order(on_file)
    refused = on_file.forge("jobs", "retry", job_id, "--from", "charge")
    assert refused.code != 0
    assert f"forge jobs cancel {job_id}" in refused.err
    on_file.forge("send", "paid", '{"address": "nowhere"}', "--key", "7")
    drain(on_file)
    unknown = on_file.forge("jobs", "retry", job_id, "--from", "chrage")
    assert unknown.code != 0
    assert "did you mean 'charge'?" in unknown.err
    done = on_file.forge("jobs", "retry", job_id, "--from", "wait:paid")
    assert done.out == "1 job back in line from 'wait:paid': 2 steps run again, 3 kept.\n"
    assert "retry from step" in on_file.forge("audit").out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["send", "paid", "{broken"], "JSON"),
        (["send", "no name"], "no name"),
        (["send", "paid", "--job", "nonsense"], "not a job id"),
        (["events", "list", "--key", "7"], "give its name too"),
        (["jobs", "steps", "nonsense"], "not a job id"),
        (["jobs", "retry", "--all", "--from", "charge"], "one job id"),
    ],
)
def test_mistakes_are_named(on_file: InProcess, words: list[str], complaint: str) -> None:
    waiting_order(on_file)
    said = on_file.forge(*words)
    assert said.code != 0
    assert complaint in said.err
    assert len(said.err.splitlines()) == 1


def test_an_event_to_an_ended_or_unknown_job_is_refused(on_file: InProcess) -> None:
    job_id = waiting_order(on_file)
    on_file.forge("jobs", "cancel", job_id)
    said = on_file.forge("send", "paid", "--job", job_id, "--json")
    assert json.loads(said.err)["error"]["code"] == "refused"
    unknown = job_id[:-1] + ("0" if job_id[-1] != "0" else "1")
    assert decode(unknown) is not None
    assert "there is no job" in on_file.forge("send", "paid", "--job", unknown).err


def test_only_retry_has_from(in_process: InProcess) -> None:
    assert "--from" in in_process.forge("jobs", "retry", "--help").out
    assert "--from" not in in_process.forge("jobs", "cancel", "--help").out


def test_a_dedupe_key_sends_once(on_file: InProcess) -> None:
    waiting_order(on_file)
    first = on_file.forge("send", "paid", "--key", "9", "--dedupe-key", "evt_1", "--json")
    assert first.data == {"duplicate": False, "resumed": 0}
    again = on_file.forge("send", "paid", "--key", "9", "--dedupe-key", "evt_1")
    assert again.out.startswith("Not sent")
