"""``forge cron``: output, changes, refusals."""

import pytest

from tests.cli.conftest import InProcess


@pytest.fixture
def nightly(in_process: InProcess) -> InProcess:
    answer = in_process.forge(
        "cron", "create", "nightly", "0 3 * * *", "cleanup", "--tz", "Europe/Paris"
    )
    assert answer.code == 0, answer.err
    return in_process


def test_a_created_schedule_is_listed(nightly: InProcess) -> None:
    shown = nightly.forge("cron", "list").out
    assert "nightly" in shown
    assert "0 3 * * *" in shown
    assert max(map(len, shown.splitlines())) <= 80
    (view,) = nightly.forge("cron", "list", "--json").data["schedules"]
    assert (view["name"], view["tz"], view["kind"]) == ("nightly", "Europe/Paris", "cleanup")
    assert (view["missed"], view["overlap"], view["enabled"]) == ("once", "skip", True)
    assert view["next_at"].endswith("Z")
    assert view["last_at"] is None
    assert view["declared"] is False


def test_long_schedules_fit_80_columns(in_process: InProcess) -> None:
    often = ",".join(str(minute) for minute in range(60))
    in_process.forge(
        "cron",
        "create",
        "n" * 60,
        f"{often} * * * *",
        "k" * 60,
        "--tz",
        "America/Argentina/Ushuaia",
    )
    assert max(map(len, in_process.forge("cron", "list").out.splitlines())) <= 80


def test_an_empty_list_explains_how_to_create_a_schedule(in_process: InProcess) -> None:
    answer = in_process.forge("cron", "list")
    assert answer.code == 0
    assert "@forge.cron" in answer.out


def test_every_option_of_create_is_stored(in_process: InProcess) -> None:
    answer = in_process.forge(
        "cron", "create", "poll", "*/10 * * * * *", "poll", "--payload", '{"n": 1, "token": "x"}',
        "--queue", "fast", "--missed", "all", "--missed-limit", "7", "--jitter", "90",
        "--max-attempts", "2", "--disabled", "--json",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    view = answer.data
    assert (view["queue"], view["missed"], view["missed_limit"]) == ("fast", "all", 7)
    assert (view["overlap"], view["jitter_s"], view["max_attempts"]) == ("allow", 90, 2)
    assert (view["enabled"], view["next_at"]) == (False, None)
    assert view["payload"] == {"n": 1, "token": "***"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["create", "x", "0 3 * *", "k"], "has 4 fields"),
        (["create", "x", "@reboot", "k"], "not supported"),
        (["create", "x", "0 3 * * *", "k", "--tz", "Europe/Pariss"], "did you mean Europe/Paris"),
        (["create", "x", "0 3 * * *", "k", "--missed", "some"], "use skip, once, all"),
        (["create", "x", "0 3 * * *", "k", "--overlap", "x"], "use skip, allow"),
        (["create", "x", "0 3 * * *", "k", "--payload", "[1]"], "--payload must be an object"),
        (["create", "x", "0 3 * * *", "k", "--jitter", "soon"], "is not a duration"),
        (["create", "a b", "0 3 * * *", "k"], "schedule 'a b' is not allowed"),
        (["set", "nightly"], "say what to set"),
        (["set", "nightly", "--cron", "1 2 3 4 5 6 7"], "year field"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(
    nightly: InProcess, words: list[str], complaint: str
) -> None:
    answer = nightly.forge("cron", *words)
    assert answer.code == 2
    assert complaint in answer.err
    assert len(nightly.forge("cron", "list", "--json").data["schedules"]) == 1


@pytest.mark.parametrize("verb", ["set", "run", "enable", "disable", "delete", "history"])
def test_low_an_unknown_schedule_is_an_error(nightly: InProcess, verb: str) -> None:
    more = ["--cron", "@daily"] if verb == "set" else []
    answer = nightly.forge("cron", verb, "nightlie", *more)
    assert answer.code == 1
    assert "there is no schedule 'nightlie'" in answer.err


def test_an_existing_name_is_refused(nightly: InProcess) -> None:
    answer = nightly.forge("cron", "create", "nightly", "@daily", "x")
    assert answer.code == 2
    assert "forge cron set" in answer.err


def test_set_changes_only_the_given_fields(nightly: InProcess) -> None:
    view = nightly.forge("cron", "set", "nightly", "--missed", "skip", "--json").data
    assert (view["missed"], view["expression"], view["tz"]) == ("skip", "0 3 * * *", "Europe/Paris")
    view = nightly.forge(
        "cron", "set", "nightly", "--cron", "30 4 * * *", "--tz", "UTC", "--queue", "mail", "--json"
    ).data
    assert view["next_at"].endswith("T04:30:00Z")
    assert view["queue"] == "mail"
    assert (
        nightly.forge("cron", "set", "nightly", "--queue", "auto", "--json").data["queue"] is None
    )
    assert "that of the kind" in nightly.forge("cron", "set", "nightly", "--jitter", "5m").out


def test_disable_and_enable(nightly: InProcess) -> None:
    assert nightly.forge("cron", "disable", "nightly", "--json").data["next_at"] is None
    assert "off" in nightly.forge("cron", "list").out
    assert nightly.forge("cron", "enable", "nightly", "--json").data["next_at"] is not None


def test_run_enqueues_by_the_rules_of_a_tick(nightly: InProcess) -> None:
    answer = nightly.forge("cron", "run", "nightly")
    job_id = answer.out.strip()
    job = nightly.forge("jobs", "show", job_id, "--json").data
    assert (job["kind"], job["queue"], job["status"]) == ("cleanup", "default", "pending")
    assert "cron:nightly" in job["tags"]
    again = nightly.forge("cron", "run", "nightly")
    assert again.out.strip() == job_id
    assert "still live" in again.err
    fires = nightly.forge("cron", "history", "nightly", "--json").data["fires"]
    assert [fire["outcome"] for fire in fires] == ["skipped", "triggered"]
    assert job_id in nightly.forge("cron", "history", "nightly").out


def test_delete(nightly: InProcess) -> None:
    assert "is deleted" in nightly.forge("cron", "delete", "nightly").out
    assert nightly.forge("cron", "list", "--json").data == {"schedules": []}


def test_show_says_how_a_schedule_does(nightly: InProcess) -> None:
    shown = nightly.forge("cron", "show", "nightly").out
    assert "at 03:00" in shown
    assert "none yet" in shown
    assert "no worker is running, and only workers fire schedules" in shown
    assert "no worker has published the kind 'cleanup'" in shown
    data = nightly.forge("cron", "show", "nightly", "--json").data
    assert (data["words"], len(data["next"]), data["runs"]) == ("at 03:00", 5, [])
    nightly.forge("cron", "run", "nightly")
    [run] = nightly.forge("cron", "show", "nightly", "--json").data["runs"]
    assert (run["state"], run["triggered"], run["ran_s"]) == ("waiting", True, None)
    answer = nightly.forge("cron", "show", "never")
    assert (answer.code, "there is no schedule 'never'" in answer.err) == (1, True)
