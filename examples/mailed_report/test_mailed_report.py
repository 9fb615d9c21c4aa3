"""Tests of the report, on a day of our choice."""

import os
from contextlib import closing
from datetime import UTC, datetime
from email import message_from_bytes

from mailed_report import ZONE, daily_report, forge, sales, send_report

from forge_jobs import testing

os.environ["FORGE_URL"] = "memory://"
MONDAY = datetime(2026, 3, 30, 5, tzinfo=UTC)  # seven in Paris, summer time


def test_the_report_of_monday_counts_what_was_sold_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with closing(sales()) as connection, connection:
        rows = [("2026-03-27", 1250), ("2026-03-30", 9900)]
        connection.executemany("INSERT INTO sales VALUES (?, ?)", rows)
    with testing.frozen(forge, at=MONDAY):
        report = daily_report.enqueue()
        forge.drain().run()
    assert report.result(timeout=0) == "1 sales, 12.50 in all"
    [mail] = (tmp_path / "outbox").iterdir()
    message = message_from_bytes(mail.read_bytes())
    assert message["Subject"] == "Sales before 2026-03-30"


def test_a_mail_server_that_does_not_answer_is_tried_again(monkeypatch):
    monkeypatch.setenv("SMTP_HOST", "127.0.0.1:1")  # nobody listens there
    with testing.frozen(forge) as time:
        job = send_report.enqueue("boss@example.org", "Sales", "none")
        forge.drain(["mail"]).run()
        assert job.refresh().status == "failed"
        time.advance("5m")
        forge.drain(["mail"]).run()
        assert job.refresh().attempts == 2


def test_it_runs_on_working_days_at_seven():
    schedule = forge.schedules.create("report", "0 7 * * mon-fri", daily_report, tz=ZONE)
    assert schedule.next_at is not None
    assert schedule.next_at.hour in (5, 6)
