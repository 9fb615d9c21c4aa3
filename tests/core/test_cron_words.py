"""Cron expressions in words."""

import pytest

from forge_jobs.core.cron_words import in_words
from forge_jobs.core.errors import BadCron


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0 3 * * *", "at 03:00"),
        ("@daily", "at 00:00"),
        ("@hourly", "every hour at minute 0"),
        ("15 */6 * * *", "every 6 hours at minute 15"),
        ("0 9 * * mon-fri", "at 09:00, on Monday to Friday"),
        ("0 9,12,15 * * 1", "at 09:00, 12:00 and 15:00, on Monday"),
        ("*/10 9-17 * * *", "every 10 minutes of the hours 9 to 17"),
        ("*/10 */2 * * *", "every 10 minutes of every second hour"),
        ("0 0 1 1 *", "at 00:00, on day 1 of the month, in January"),
        ("0 0 1,15 * *", "at 00:00, on days 1 and 15 of the month"),
        ("30 4 L * *", "at 04:30, on the last day of the month"),
        ("0 0 13 * 5", "at 00:00, on day 13 of the month or on Friday"),
        ("0 6 * jun-aug sat,sun", "at 06:00, on Saturday and Sunday, in June to August"),
        ("0 8 * * mon#1", "at 08:00, on the 1st Monday of the month"),
        ("*/15 * * * * *", "every 15 seconds"),
        ("30 0 12 * * *", "at second 30, at 12:00"),
    ],
)
def test_an_expression_in_words(expression: str, words: str) -> None:
    assert in_words(expression) == words


def test_a_wrong_expression_is_refused() -> None:
    with pytest.raises(BadCron):
        in_words("61 * * * *")
