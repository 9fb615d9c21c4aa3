"""A report by mail every working day. Run: python examples/mailed_report/mailed_report.py

The mail goes to the server in SMTP_HOST, else as a file into the folder outbox.
"""

import os
import smtplib
import sqlite3
from contextlib import closing
from datetime import datetime
from email.message import EmailMessage
from pathlib import Path
from zoneinfo import ZoneInfo

from forge_jobs import Context, Forge, Retry

forge = Forge()
ZONE = "Europe/Paris"


def sales() -> sqlite3.Connection:
    connection = sqlite3.connect("sales.db")
    connection.execute("CREATE TABLE IF NOT EXISTS sales (day TEXT, cents INTEGER)")
    return connection


def deliver(message: EmailMessage) -> None:
    if host := os.environ.get("SMTP_HOST"):
        with smtplib.SMTP(host, timeout=20) as server:
            server.send_message(message)
    else:
        Path("outbox").mkdir(exist_ok=True)
        Path("outbox", f"{message['Subject']}.eml").write_bytes(bytes(message))


@forge.task(queue="mail", max_attempts=8, retry=Retry(base="1m", max="1h"), scopes=["smtp"])
def send_report(to: str, subject: str, text: str) -> None:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "reports@example.org", to, subject
    message.set_content(text)
    deliver(message)


@forge.cron("0 7 * * mon-fri", tz=ZONE, missed="once")
@forge.task(queue="reports", timeout="10m")
def daily_report(ctx: Context) -> str:
    """The tick is the moment that the schedule names, also when the job runs late."""
    ticks = [tag.removeprefix("tick:") for tag in ctx.job.tags if tag.startswith("tick:")]
    moment = datetime.fromisoformat(ticks[0]) if ticks else ctx.job.enqueued_at
    day = moment.astimezone(ZoneInfo(ZONE)).date().isoformat()
    with closing(sales()) as connection:
        count, cents = connection.execute(
            "SELECT count(*), coalesce(sum(cents), 0) FROM sales WHERE day < ?", [day]
        ).fetchone()
    text = f"{count} sales, {cents / 100:.2f} in all"
    # Two jobs, so that a mail server that does not answer never counts the sales again.
    ctx.on_done(send_report, "boss@example.org", f"Sales before {day}", text)
    return text


def main() -> None:
    with closing(sales()) as connection, connection:
        connection.execute("DELETE FROM sales")
        rows = [("2026-03-27", 1250), ("2026-03-28", 990), ("2026-03-29", 4100)]
        connection.executemany("INSERT INTO sales VALUES (?, ?)", rows)
    job = daily_report.enqueue()  # the schedule does this; so does: forge cron run daily_report
    forge.drain().run()
    print(job.result(timeout=5))
    print(len(list(Path("outbox").glob("Sales before *.eml"))), "mail in the outbox")


if __name__ == "__main__":
    main()
