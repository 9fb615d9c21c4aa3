"""The output of query commands: valid JSON, tables within 80 columns."""

import pytest

from forge_jobs.core.status import JobStatus
from tests.cli.conftest import InProcess
from tests.ops.harness import StoreHarness

LONG = "a-queue-with-a-name-that-is-as-long-as-a-name-of-a-queue-can-be"


async def jobs_in_every_state(harness: StoreHarness) -> list[str]:
    await harness.store.queues.ensure("mail", slots=20)
    await harness.register_worker(
        "mail", host_id="01M7GHXFNY0000000000003Q9F", label="shop-worker-1.4-01M7GHXF"
    )
    dead = await harness.dead_jobs(2, payload=b'{"to":"a@b.c","password":"hunter2"}', tags=("vip",))
    await harness.enqueue(4)
    await harness.enqueue(1, delay_s=700)
    await harness.enqueue(2, queue=LONG, kind="transcode_every_picture_of_the_shop_into_webp")
    first, second, _ = await harness.claim(count=3)
    await harness.succeed(first, b'{"sent":1}')
    await harness.fail(second, "the mail server hung up\n  in a second line")
    await harness.actions.pause(LONG)
    return dead


@pytest.mark.parametrize(
    "command",
    [
        ["jobs", "list"],
        ["queues", "list"],
        ["tasks", "list"],
        ["tasks", "list", "--by", "queue"],
        ["tasks", "show", "send"],
        ["tags", "list"],
        ["tags", "show", "vip"],
        ["workers"],
        ["stats"],
        ["doctor"],
        ["db", "status"],
        ["jobs", "retry", "--status", "dead", "--dry-run"],
    ],
)
def test_lists_fit_80_columns_and_have_a_json_form(
    in_process: InProcess, command: list[str]
) -> None:
    in_process.fill(jobs_in_every_state)
    table = in_process.forge(*command)
    assert table.code == 0, table.err
    assert table.out.strip()
    assert max(map(len, table.out.splitlines())) <= 80
    assert isinstance(in_process.forge(*command, "--json").data, dict)


def test_the_list_of_jobs(in_process: InProcess) -> None:
    in_process.fill(jobs_in_every_state)
    lines = in_process.forge("jobs", "list", "--queue", "mail").out.splitlines()
    assert lines[0].split() == ["ID", "KIND", "QUEUE", "STATE", "TRIES", "WHEN"]
    assert len(lines) == 8
    assert [line.split()[3] for line in lines[1:]].count("dead") == 2
    dead = in_process.forge("jobs", "list", "--status", "dead", "--json").data
    assert {job["status"] for job in dead["jobs"]} == {"dead"}
    assert dead["next"] is None


@pytest.mark.parametrize("word", ["running", "in_progress", "running,dead"])
def test_states_by_name_and_alias(in_process: InProcess, word: str) -> None:
    in_process.fill(jobs_in_every_state)
    jobs = in_process.forge("jobs", "list", "--status", word, "--json").data["jobs"]
    assert len(jobs) == (3 if "," in word else 1)


def test_a_list_continues_after_its_cursor(in_process: InProcess) -> None:
    ids = in_process.fill(lambda harness: harness.enqueue(5))
    first = in_process.forge("jobs", "list", "--limit", "3")
    cursor = first.out.split("--after ")[1].strip()
    rest = in_process.forge("jobs", "list", "--limit", "3", "--after", cursor, "--json").data
    assert [job["id"] for job in rest["jobs"]] == [ids[1], ids[0]]
    wrong = in_process.forge("jobs", "list", "--after", "nonsense")
    assert wrong.code == 2
    assert "cursor" in wrong.err


def test_show_prints_a_complete_job(in_process: InProcess) -> None:
    dead, *_ = in_process.fill(jobs_in_every_state)
    shown = in_process.forge("jobs", "show", dead)
    assert max(map(len, shown.out.splitlines())) <= 80
    for words in (
        dead,
        "it ended as dead",
        f"forge jobs retry {dead}",
        "hopeless",
        "vip",
        "1 of 5",
    ):
        assert words in shown.out
    assert "hunter2" not in shown.out
    data = in_process.forge("jobs", "show", dead, "--json").data
    assert data["payload"] == {"to": "a@b.c", "password": "***"}
    assert data["why"][0]["code"] == "ended"
    revealed = in_process.forge("jobs", "show", dead, "--json", "--reveal").data
    assert revealed["payload"]["password"] == "hunter2"


def test_show_prints_rare_options(in_process: InProcess) -> None:
    (plain,) = in_process.fill(lambda harness: harness.enqueue(1))
    (job,) = in_process.fill(lambda harness: harness.enqueue(1, options={"note": "at night"}))
    assert '{"note": "at night"}' in in_process.forge("jobs", "show", job).out
    assert in_process.forge("jobs", "show", job, "--json").data["options"] == {"note": "at night"}
    assert "options" not in in_process.forge("jobs", "show", plain).out


def test_the_list_of_queues_explains_blocked_queues(in_process: InProcess) -> None:
    in_process.fill(jobs_in_every_state)
    table = " ".join(in_process.forge("queues", "list").out.split())
    assert "is paused" in table
    assert f"forge queues resume {LONG}" in table
    queues = {
        queue["name"]: queue
        for queue in in_process.forge("queues", "list", "--json").data["queues"]
    }
    assert queues["mail"]["counts"]["dead"] == 2
    assert set(queues["mail"]["counts"]) == set(JobStatus)
    assert [block["code"] for block in queues[LONG]["blocks"]] == ["paused", "no_worker"]


def test_workers_and_quiet(in_process: InProcess) -> None:
    in_process.fill(jobs_in_every_state)
    assert "shop-worker-1.4-01M7GHXF" in in_process.forge("workers").out
    assert (
        in_process.forge("workers", "quiet", "01M7GHX").out.strip().endswith("takes no more jobs.")
    )
    assert in_process.forge("workers", "--json").data["workers"][0]["quiet"] is True
    assert in_process.forge("workers", "quiet", "shop-worker-1.4-01M7GHXF", "--off").code == 0
    assert in_process.forge("workers", "--json").data["workers"][0]["quiet"] is False
    unknown = in_process.forge("workers", "quiet", "nobody")
    assert (unknown.code, unknown.out) == (1, "")
    assert "no living worker 'nobody'" in unknown.err


def test_stats_count_jobs(in_process: InProcess) -> None:
    in_process.fill(jobs_in_every_state)
    data = in_process.forge("stats", "--minutes", "3", "--json").data
    assert data["counts"]["dead"] == 2
    assert len(data["minutes"]) == 3
    assert sum(minute["done"] for minute in data["minutes"]) == 1
    assert sum(minute["enqueued"] for minute in data["minutes"]) == 9
    assert "2 dead" in in_process.forge("stats").out


def test_empty_stores_print_the_next_step(in_process: InProcess) -> None:
    assert in_process.forge("jobs", "list").out == "No jobs match.\n"
    assert "forge worker APP" in in_process.forge("queues", "list").out
    assert "forge worker APP" in in_process.forge("workers").out
    assert "No jobs." in in_process.forge("stats").out


TRACEBACK = """Traceback (most recent call last):
  File "/srv/a/deeply/nested/folder/with/a/long/name/of/the/shop/mail/app.py", line 12, in send
    return ADDRESSES["missing"]
           ^^^^^^^^^^^^^^^^^^^^
KeyError: 'missing'"""


def test_u1_show_prints_the_traceback_within_80_columns(in_process: InProcess) -> None:
    async def one_dead(harness: StoreHarness) -> str:
        await harness.register_worker("mail")
        [job] = await harness.enqueue(1)
        await harness.kill((await harness.claim(count=1))[0], "KeyError: 'missing'", TRACEBACK)
        return job

    job = in_process.fill(one_dead)
    shown = in_process.forge("jobs", "show", job)
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "Traceback of attempt 1\n" in shown.out
    assert '    return ADDRESSES["missing"]\n' in shown.out
    assert "/srv/a/deeply/nested/folder/with/a/long/name/of/the/shop/mail/app.py" in "".join(
        shown.out.splitlines()
    )
    data = in_process.forge("jobs", "show", job, "--json").data
    assert data["errors"][0]["traceback"] == TRACEBACK
    listed = in_process.forge("jobs", "list", "--json").data
    assert "traceback" not in str(listed)


async def jobs_to_two_people(harness: StoreHarness) -> None:
    await harness.enqueue(2, payload=b'{"to":"ann@example.com"}')
    await harness.enqueue(3, payload=b'{"to":"bob@example.com"}')


def test_a_query_line_chooses_jobs_by_an_argument(in_process: InProcess) -> None:
    in_process.fill(jobs_to_two_people)
    listed = in_process.forge("jobs", "list", "--query", "to:ann@ since:1h", "--json").data
    assert [job["arguments"] for job in listed["jobs"]] == ['{"to":"ann@example.com"}'] * 2
    cancelled = in_process.forge("jobs", "cancel", "--query", "to:bob", "--yes", "--json").data
    assert cancelled["changed"] == 3
    wrong = in_process.forge("jobs", "list", "--query", "since:yesterday")
    assert wrong.code == 2
    assert "since:yesterday is no time" in wrong.err


def test_views_are_saved_listed_and_deleted(in_process: InProcess) -> None:
    in_process.fill(jobs_to_two_people)
    saved = in_process.forge("views", "save", "to ann", "to:ann@")
    assert saved.out == "saved: forge jobs list --query 'to:ann@'\n"
    listed = in_process.forge("views", "list", "--json").data
    assert listed == {"views": [{"name": "to ann", "query": "to:ann@"}]}
    assert in_process.forge("views", "delete", "to ann").code == 0
    assert in_process.forge("views", "list").out == "No view is saved.\n"
